# Scores against the references: all trials of a learned method in one job, baselines and the
# reference itself in another, or all that a case asks for in one.
# And the time of one answer, measured.


rule evaluate:
    input:
        functions=input_of("evaluate", "functions"),
        reference=input_of("evaluate", "reference"),
        weights=input_of("evaluate", "weights"),
    output:
        f"{RESULTS}/evaluate/{{name}}.csv",
    log:
        f"{RESULTS}/logs/evaluate/{{name}}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(8000),
        runtime=growing(60),
    params:
        spec=spec_of("evaluate"),
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
