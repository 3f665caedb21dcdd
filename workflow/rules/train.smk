# A stack of trials of one method. The checkpoint is not an output (Snakemake deletes outputs before
# a job runs), so an interrupted training continues where it stopped.


rule train:
    input:
        functions=lambda w: f"{RESULTS}/simulate/{PLAN.problem(w.experiment)}.h5",
        sensors=f"{RESULTS}/sensors/{{experiment}}.h5",
        reference=f"{RESULTS}/reference/{{experiment}}/validation.h5",
    output:
        weights=f"{RESULTS}/train/{{experiment}}/{{method}}/stack_{{stack}}.safetensors",
        log=f"{RESULTS}/train/{{experiment}}/{{method}}/stack_{{stack}}.csv",
    log:
        f"{RESULTS}/logs/train/{{experiment}}/{{method}}/stack_{{stack}}.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=8000,
        runtime=720,
        gpu=1 if CONFIG.jobs.device.startswith("cuda") else 0,
    params:
        spec=lambda w: PLAN.train(w.experiment, w.method, int(w.stack)),
        state=f"{RESULTS}/state/{{experiment}}/{{method}}/stack_{{stack}}.safetensors",
    script:
        "../scripts/train.py"
