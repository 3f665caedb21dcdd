# One trial of one method. The checkpoint is not an output (Snakemake deletes outputs before a job
# runs), so an interrupted training continues where it stopped.


rule train:
    input:
        functions=input_of("train", "functions"),
        sensors=input_of("train", "sensors"),
        reference=input_of("train", "reference"),
    output:
        weights=f"{RESULTS}/train/{{name}}.safetensors",
        log=f"{RESULTS}/train/{{name}}.csv",
    log:
        f"{RESULTS}/logs/train/{{name}}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(8000),
        runtime=growing(240),
        gpu=1 if CONFIG.jobs.device.startswith("cuda") else 0,
    params:
        spec=spec_of("train"),
        state=f"{RESULTS}/state/train/{{name}}.safetensors",
    script:
        "../scripts/train.py"
