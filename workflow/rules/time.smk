# Sensors that read over time in section 4.5 (config/time.yaml): runs, a job for each method, table and figure.


rule trajectories:
    output:
        f"{RESULTS}/over_time/trajectories.h5",
    log:
        f"{RESULTS}/logs/over_time/trajectories.log",
    benchmark:
        f"{RESULTS}/times/over_time/trajectories.tsv"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=growing(4000),
        runtime=growing(60),
    params:
        settings=lambda w: STUDY.config.over_time.model_dump(exclude={"members"}),
        seed=config["seed"],
        code=lambda w: code("trajectories"),
    script:
        "../scripts/trajectories.py"


rule over_time:
    input:
        trajectories=f"{RESULTS}/over_time/trajectories.h5",
        sensors=f"{RESULTS}/sensors/navier_stokes/apart.h5",
    output:
        f"{RESULTS}/over_time/{{method}}.csv",
    log:
        f"{RESULTS}/logs/over_time/{{method}}.log",
    benchmark:
        f"{RESULTS}/times/over_time/{{method}}.tsv"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=growing(8000),
        runtime=growing(60),
    params:
        settings=lambda w: STUDY.config.over_time.model_dump(),
        seed=config["seed"],
        code=lambda w: code("over_time"),
    script:
        "../scripts/over_time.py"


rule over_time_report:
    input:
        answers=expand(
            f"{RESULTS}/over_time/{{method}}.csv",
            method=["sensor_free", "one_shot", "filter", "ensemble"],
        ),
    output:
        expand(f"{RESULTS}/tables/time.{{kind}}", kind=["tex", "csv", "html"]),
        figure=expand(f"{RESULTS}/figures/time.{{kind}}", kind=["pdf", "png"]),
    log:
        f"{RESULTS}/logs/tables/time.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        settings=lambda w: STUDY.config.over_time.model_dump(),
        scale=config["scale"],
        code=lambda w: code("over_time_report"),
    script:
        "../scripts/over_time_report.py"
