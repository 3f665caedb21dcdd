# A stack of trials of one method. The checkpoint is not an output (Snakemake deletes outputs before
# a job runs), so an interrupted training continues where it stopped.


rule train:
    input:
        functions=lambda w: PLAN.functions(w.case),
        sensors=lambda w: PLAN.layouts(w.case),
        reference=lambda w: PLAN.posteriors(w.case, "validation"),
    output:
        weights=f"{RESULTS}/train/{{case}}/{{method}}/stack_{{stack}}.safetensors",
        log=f"{RESULTS}/train/{{case}}/{{method}}/stack_{{stack}}.csv",
    log:
        f"{RESULTS}/logs/train/{{case}}/{{method}}/stack_{{stack}}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(8000),
        runtime=growing(240),
        gpu=1 if CONFIG.jobs.device.startswith("cuda") else 0,
    params:
        spec=lambda w: PLAN.train(w.case, w.method, int(w.stack)),
        state=f"{RESULTS}/state/{{case}}/{{method}}/stack_{{stack}}.safetensors",
    script:
        "../scripts/train.py"
