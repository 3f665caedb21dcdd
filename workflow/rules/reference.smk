# Exact reference posteriors of the observation sets of an evaluation.


rule reference:
    input:
        functions=lambda w: PLAN.functions(w.case),
        sensors=lambda w: PLAN.layouts(w.case),
    output:
        f"{RESULTS}/reference/{{case}}/{{evaluation}}.h5",
    log:
        f"{RESULTS}/logs/reference/{{case}}/{{evaluation}}.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=4000,
        runtime=240,
    params:
        spec=lambda w: PLAN.reference(w.case, w.evaluation),
    script:
        "../scripts/reference.py"
