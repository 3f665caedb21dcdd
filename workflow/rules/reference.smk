# Exact reference posteriors of the observation sets of an evaluation. Where they are sampled set by
# set, several cores share a job; finished parts are no output, so a killed job continues.


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
    threads: lambda w: CONFIG.experiments[CONFIG.cases[w.case].experiment].reference_workers
    resources:
        mem_mb=growing(4000),
        runtime=lambda w, attempt: attempt * (480 if w.evaluation == "precise" else 60),
    params:
        spec=lambda w: PLAN.reference(w.case, w.evaluation),
        state=f"{RESULTS}/state/reference/{{case}}/{{evaluation}}",
    script:
        "../scripts/reference.py"
