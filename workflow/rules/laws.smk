# Other laws of the input for trained operators (config/laws.yaml), a job for each trial, and their scores.


rule law:
    input:
        functions=f"{RESULTS}/data/{{problem}}.h5",
        sensors=lambda w: f"{RESULTS}/sensors/{w.problem}/{law(w).layout}.h5",
        weights=lambda w: f"{RESULTS}/train/{w.problem}/{w.recipe}/{law(w).model}/trial{w.trial}.safetensors",
    output:
        law=f"{RESULTS}/law/{{problem}}/{{recipe}}/{{law}}/trial{{trial}}.safetensors",
        log=f"{RESULTS}/law/{{problem}}/{{recipe}}/{{law}}/trial{{trial}}.csv",
    log:
        f"{RESULTS}/logs/law/{{problem}}/{{recipe}}/{{law}}/trial{{trial}}.log",
    benchmark:
        f"{RESULTS}/times/law/{{problem}}/{{recipe}}/{{law}}/trial{{trial}}.tsv"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=growing(8000),
        runtime=growing(60),
    params:
        settings=lambda w: STUDY.law(law(w), law(w).method).model_dump(
            exclude={"law_of"}
        ),
        pairs=lambda w: law(w).N,
        noise=lambda w: law(w).noise,
        seed=config["seed"],
        code=lambda w: code("law", *law(w).modules),
    script:
        "../scripts/law.py"


rule law_scores:
    input:
        scores=lambda w: ask(STUDY.score_files, inputs.law_experiments(STUDY)),
    output:
        f"{RESULTS}/scores.csv",
    log:
        f"{RESULTS}/logs/law_scores.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        config=lambda w: STUDY.part(
            inputs.law_experiments(STUDY), tables=inputs.law_tables(STUDY)
        ),
        code=lambda w: code("law_scores"),
    script:
        "../scripts/law_scores.py"
