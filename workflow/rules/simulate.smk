# The merged configuration beside its results, and the functions of every problem.


rule save_config:
    output:
        f"{RESULTS}/config.json",
    log:
        f"{RESULTS}/logs/save_config.log",
    localrule: True
    conda:
        "../../environment.yml"
    resources:
        mem_mb=500,
        runtime=5,
    params:
        told=lambda w: Told(CONFIG.model_dump(mode="json")),
    script:
        "../scripts/save_config.py"


# Finished shards are not an output (Snakemake deletes outputs before a job runs), so an interrupted
# generation continues where it stopped. The record says what this run took; nothing depends on it.
# Own data are read instead of made: their file counts by its content, which is among the parameters.
rule simulate:
    input:
        files=lambda w: ancient(list(PLAN.own_files(w.problem))),
    output:
        functions=f"{RESULTS}/data/{{problem}}.h5",
        record=f"{RESULTS}/data/{{problem}}.json",
    log:
        f"{RESULTS}/logs/data/{{problem}}.log",
    conda:
        "../../environment.yml"
    resources:
        **cost(2000, 60),
        gpu=1 if CONFIG.jobs.device.startswith("cuda") else 0,
    params:
        told=lambda w: Told(
            problem=w.problem,
            config=CONFIG.problems[w.problem].model_dump(mode="json"),
            files=PLAN.own_files(w.problem),
            seed=CONFIG.seed,
            code=code("simulate", *problem_modules([w.problem])),
        ),
        state=f"{RESULTS}/state/data/{{problem}}",
    script:
        "../scripts/simulate.py"
