# Exact reference posteriors of the observation sets of an evaluation.


rule reference:
    input:
        functions=lambda w: f"{RESULTS}/simulate/{PLAN.problem(w.experiment)}.h5",
        sensors=f"{RESULTS}/sensors/{{experiment}}.h5",
    output:
        f"{RESULTS}/reference/{{experiment}}/{{evaluation}}.h5",
    log:
        f"{RESULTS}/logs/reference/{{experiment}}/{{evaluation}}.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=4000,
        runtime=240,
    params:
        spec=lambda w: PLAN.reference(w.experiment, w.evaluation),
    script:
        "../scripts/reference.py"
