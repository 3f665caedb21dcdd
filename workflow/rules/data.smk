# Functions, places of sensors, and exact posteriors. Finished parts are kept under state/ and are no
# output (Snakemake deletes outputs before a job runs), so a killed job continues where it stopped.


rule simulate:
    output:
        functions=f"{RESULTS}/data/{{problem}}.h5",
        record=f"{RESULTS}/data/{{problem}}.json",
    log:
        f"{RESULTS}/logs/data/{{problem}}.log",
    benchmark:
        f"{RESULTS}/times/data/{{problem}}.tsv"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=growing(2000),
        runtime=growing(60),
        gpu=GPU,
    params:
        sizes=lambda w: STUDY.sizes(w.problem),
        seed=config["seed"],
        code=problem_code("simulate"),
        state=f"{RESULTS}/state/data/{{problem}}",
    script:
        "../scripts/simulate.py"


rule sensors:
    output:
        f"{RESULTS}/sensors/{{problem}}/{{layout}}.h5",
    log:
        f"{RESULTS}/logs/sensors/{{problem}}/{{layout}}.log",
    benchmark:
        f"{RESULTS}/times/sensors/{{problem}}/{{layout}}.tsv"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=growing(1000),
        runtime=growing(30),
    params:
        layout=lambda w: STUDY.config.layouts[w.layout].model_dump(mode="json"),
        validation=lambda w: STUDY.sizes(w.problem)["validation"],
        test=lambda w: STUDY.sizes(w.problem)["test"],
        seed=config["seed"],
        code=problem_code("sensors"),
    script:
        "../scripts/sensors.py"


# Where observation sets are sampled one by one, several cores share a job.
rule reference:
    input:
        functions=f"{RESULTS}/data/{{problem}}.h5",
        sensors=f"{RESULTS}/sensors/{{problem}}/{{layout}}.h5",
    output:
        f"{RESULTS}/reference/{{problem}}/{{layout}}-noise{{noise}}/{{evaluation}}.h5",
    log:
        f"{RESULTS}/logs/reference/{{problem}}/{{layout}}-noise{{noise}}/{{evaluation}}.log",
    benchmark:
        f"{RESULTS}/times/reference/{{problem}}/{{layout}}-noise{{noise}}/{{evaluation}}.tsv"
    conda:
        "../../environment.yml"
    threads: lambda w: STUDY.config.problems[w.problem].workers
    resources:
        mem_mb=growing(4000),
        runtime=growing(480),
    params:
        evaluation=lambda w: STUDY.evaluation(w.problem, w.evaluation).model_dump(
            exclude={"model_samples"}
        ),
        seed=config["seed"],
        code=problem_code("reference"),
        state=f"{RESULTS}/state/reference/{{problem}}/{{layout}}-noise{{noise}}/{{evaluation}}",
    script:
        "../scripts/reference.py"
