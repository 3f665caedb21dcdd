# Scores against the references: learned methods by stack, baselines and the reference itself once.


rule evaluate:
    input:
        unpack(lambda w: PLAN.weights_scored(w.experiment, w.method, int(w.stack))),
        functions=lambda w: f"{RESULTS}/simulate/{PLAN.problem(w.experiment)}.h5",
        reference=f"{RESULTS}/reference/{{experiment}}/{{evaluation}}.h5",
    output:
        f"{RESULTS}/evaluate/{{experiment}}/{{evaluation}}/{{method}}/stack_{{stack}}.csv",
    log:
        f"{RESULTS}/logs/evaluate/{{experiment}}/{{evaluation}}/{{method}}/stack_{{stack}}.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=4000,
        runtime=240,
    params:
        spec=lambda w: PLAN.evaluate(w.experiment, w.evaluation, w.method),
    script:
        "../scripts/evaluate.py"
