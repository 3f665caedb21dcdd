# One trial of one method. The checkpoint is not an output (Snakemake deletes outputs before a job
# runs), so an interrupted training continues where it stopped. Experiments that need the same training
# share it: of their validation sets those with the least noise and the most sensor counts judge it.


rule train:
    input:
        functions=f"{RESULTS}/data/{{problem}}.h5",
        sensors=lambda w: PLAN.paths.layouts(trials("train", w)[0]),
        reference=lambda w: PLAN.paths.reference(trials("train", w)[0], "validation"),
    output:
        weights=f"{RESULTS}/train/{{problem}}/{{recipe}}/{{method}}-N{{pairs}}{{more}}/trial{{trial}}.safetensors",
        log=f"{RESULTS}/train/{{problem}}/{{recipe}}/{{method}}-N{{pairs}}{{more}}/trial{{trial}}.csv",
    log:
        f"{RESULTS}/logs/train/{{problem}}/{{recipe}}/{{method}}-N{{pairs}}{{more}}/trial{{trial}}.log",
    conda:
        "../../environment.yml"
    resources:
        **cost(8000, 240),
        gpu=1 if CONFIG.jobs.device.startswith("cuda") else 0,
    params:
        told=lambda w: Told(
            problem=w.problem,
            method=w.method,
            config=CONFIG.method_of(trials("train", w)[0].name, w.method).model_dump(
                mode="json"
            ),
            training=int(w.pairs),
            noise_std=trials("train", w)[0].noise_std,
            trial=int(w.trial),
            seed=CONFIG.seed,
            code=code("train", PLAN.model(trials("train", w)[0], w.method)),
        ),
        state=f"{RESULTS}/state/train/{{problem}}/{{recipe}}/{{method}}-N{{pairs}}{{more}}/trial{{trial}}.safetensors",
    script:
        "../scripts/train.py"
