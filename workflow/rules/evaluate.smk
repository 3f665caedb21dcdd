# Scores against the references: all trials of a learned method in one job, baselines and the
# reference itself in another. And the time of one answer, measured.


rule evaluate:
    input:
        unpack(lambda w: merged(job.inputs for job in evaluations(w))),
    output:
        files_of(f"{RESULTS}/evaluate/{{name}}.csv", name=PLAN.scored()),
    log:
        log_of("evaluate", "name"),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(8000),
        runtime=growing(60),
    params:
        specs=lambda w: {job.name: job.spec for job in evaluations(w)},
        files=lambda w: {job.name: job.inputs for job in evaluations(w)},
    script:
        "../scripts/evaluate.py"


rule inference:
    input:
        weights=input_of("inference", "weights"),
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
        spec=spec_of("inference"),
    script:
        "../scripts/inference.py"
