# Where sensors stand: a job for each problem scores greedy, worst, space-filling and random places by
# exact posteriors. Finished parts are no output, so a killed job continues.


rule placement:
    input:
        functions=input_of("placement", "functions"),
        weights=input_of("placement", "weights"),
    output:
        f"{RESULTS}/placement/{{name}}.csv",
    log:
        f"{RESULTS}/logs/placement/{{name}}.log",
    conda:
        "../../environment.yml"
    threads: lambda w: found("placement")(w).workers
    resources:
        mem_mb=growing(4000),
        runtime=growing(240),
    params:
        spec=spec_of("placement"),
        state=f"{RESULTS}/state/placement/{{name}}",
    script:
        "../scripts/placement.py"


rule place_scores:
    input:
        PLAN.place_files(),
    output:
        PLAN.place_scores(),
    log:
        f"{RESULTS}/logs/place_scores.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        spec=lambda w: PLAN.report("uqsonet_study.report.place_scores"),
    script:
        "../scripts/place_scores.py"
