# Section 4.1 from runs with gaps (config/gaps.yaml): a job for each number of points seen, and a table.


rule gaps:
    output:
        f"{RESULTS}/gaps/{{seen}}.csv",
    log:
        f"{RESULTS}/logs/gaps/{{seen}}.log",
    benchmark:
        f"{RESULTS}/times/gaps/{{seen}}.tsv"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=growing(4000),
        runtime=growing(60),
    params:
        settings=lambda w: STUDY.config.gaps.model_dump(exclude={"seen"}),
        seed=config["seed"],
        code=lambda w: code("gaps"),
    script:
        "../scripts/gaps.py"


rule gaps_report:
    input:
        answers=lambda w: expand(
            f"{RESULTS}/gaps/{{seen}}.csv", seen=["all", *STUDY.config.gaps.seen]
        ),
    output:
        expand(f"{RESULTS}/tables/gaps.{{kind}}", kind=["tex", "csv", "html"]),
    log:
        f"{RESULTS}/logs/tables/gaps.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        settings=lambda w: STUDY.config.gaps.model_dump(),
        scale=config["scale"],
        code=lambda w: code("gaps_report"),
    script:
        "../scripts/gaps_report.py"
