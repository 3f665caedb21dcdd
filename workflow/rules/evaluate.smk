# Scores against the references: learned methods by stack, baselines and the reference itself once.
# And the time of one answer, measured.


rule evaluate:
    input:
        functions=lambda w: PLAN.functions(w.case),
        reference=lambda w: PLAN.posteriors(w.case, w.evaluation),
        weights=lambda w: PLAN.weights_scored(w.case, w.method, int(w.stack)),
    output:
        f"{RESULTS}/evaluate/{{case}}/{{evaluation}}/{{method}}/stack_{{stack}}.csv",
    log:
        f"{RESULTS}/logs/evaluate/{{case}}/{{evaluation}}/{{method}}/stack_{{stack}}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(4000),
        runtime=growing(60),
    params:
        spec=lambda w: PLAN.evaluate(w.case, w.evaluation, w.method),
    script:
        "../scripts/evaluate.py"


rule inference:
    input:
        lambda w: PLAN.answering(w.case),
    output:
        f"{RESULTS}/inference/{{case}}.json",
    log:
        f"{RESULTS}/logs/inference/{{case}}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        spec=lambda w: PLAN.inference(w.case),
    script:
        "../scripts/inference.py"
