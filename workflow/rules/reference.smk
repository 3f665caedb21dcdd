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
    threads: 1
    resources:
        mem_mb=growing(4000),
        runtime=lambda w, attempt: attempt * (480 if w.evaluation == "precise" else 60),
    params:
        spec=lambda w: PLAN.reference(w.case, w.evaluation),
    script:
        "../scripts/reference.py"
