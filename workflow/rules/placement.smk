# Where sensors stand: a job for each problem scores greedy, worst, space-filling and random places by
# exact posteriors. Finished parts are no output, so a killed job continues.


rule placement:
    input:
        functions=lambda w: PLAN.paths.data(CONFIG.cases[w.case].problem),
        weights=lambda w: PLAN.placement(CONFIG.cases[w.case])[1],
    output:
        f"{RESULTS}/placement/{{case}}.csv",
    log:
        f"{RESULTS}/logs/placement/{{case}}.log",
    conda:
        "../../environment.yml"
    threads: lambda w: CONFIG.experiments[CONFIG.cases[w.case].experiment].reference_workers
    resources:
        **cost(4000, 240),
    params:
        told=lambda w: Told(places(w), seed=CONFIG.seed),
        state=f"{RESULTS}/state/placement/{{case}}",
    script:
        "../scripts/placement.py"


rule place_scores:
    input:
        [PLAN.paths.placement(case) for case in PLAN.placed()],
    output:
        f"{RESULTS}/placement/scores.csv",
    log:
        f"{RESULTS}/logs/place_scores.log",
    conda:
        "../../environment.yml"
    resources:
        **cost(2000, 10),
    params:
        told=lambda w: Told(code=code("place_scores")),
    script:
        "../scripts/place_scores.py"
