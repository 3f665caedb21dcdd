# Another law of the input for a trained operator, a job for each trial: minutes beside the training.


rule law:
    input:
        functions=input_of("law", "functions"),
        sensors=input_of("law", "sensors"),
        weights=input_of("law", "weights"),
    output:
        weights=f"{RESULTS}/law/{{name}}.safetensors",
        log=f"{RESULTS}/law/{{name}}.csv",
    log:
        f"{RESULTS}/logs/law/{{name}}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(8000),
        runtime=growing(60),
    params:
        spec=spec_of("law"),
    script:
        "../scripts/law.py"
