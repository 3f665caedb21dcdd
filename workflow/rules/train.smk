# One trial of one method. Trainings that experiments share are one file: its name has sensors and noise
# only where the network sees them. Validation sets with these, or of the problem's first case, say how
# good it is. The checkpoint is no output, so an interrupted training continues where it stopped.


rule train:
    input:
        functions=f"{RESULTS}/data/{{problem}}.h5",
        sensors=lambda w: f"{RESULTS}/sensors/{w.problem}/{training(w).layout}.h5",
        reference=lambda w: f"{RESULTS}/reference/{w.problem}/{training(w).given}/validation.h5",
    output:
        weights=f"{RESULTS}/train/{{problem}}/{{recipe}}/{{model}}/trial{{trial}}.safetensors",
        log=f"{RESULTS}/train/{{problem}}/{{recipe}}/{{model}}/trial{{trial}}.csv",
    log:
        f"{RESULTS}/logs/train/{{problem}}/{{recipe}}/{{model}}/trial{{trial}}.log",
    benchmark:
        f"{RESULTS}/times/train/{{problem}}/{{recipe}}/{{model}}/trial{{trial}}.tsv"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=growing(8000),
        runtime=growing(240),
        gpu=GPU,
    params:
        method=lambda w: training(w).method,
        pairs=lambda w: training(w).N,
        noise=lambda w: training(w).noise,
        settings=lambda w: training(w).settings.model_dump(mode="json"),
        seed=config["seed"],
        code=lambda w: code("train", training(w).module),
        state=f"{RESULTS}/state/train/{{problem}}/{{recipe}}/{{model}}/trial{{trial}}.safetensors",
    script:
        "../scripts/train.py"
