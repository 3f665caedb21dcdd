# The merged configuration beside its results, which case reads which file, and the functions of
# every problem.


rule save_config:
    output:
        config=f"{RESULTS}/config.json",
        jobs=f"{RESULTS}/jobs.csv",
    log:
        f"{RESULTS}/logs/save_config.log",
    localrule: True
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=500,
        runtime=5,
    params:
        config=lambda w: Text(CONFIG.model_dump_json(indent=2) + "\n"),
        jobs=lambda w: PLAN.listed(),
    script:
        "../scripts/save_config.py"


# Finished shards are not an output (Snakemake deletes outputs before a job runs), so an interrupted
# generation continues where it stopped. The record says what this run took; nothing depends on it.
# Own data are read instead of made: their file counts by its content, which is in the parameters.
rule simulate:
    input:
        files=lambda w: ancient(input_of("simulate", "files")(w)),
    output:
        functions=f"{RESULTS}/simulate/{{problem}}.h5",
        record=f"{RESULTS}/simulate/{{problem}}.json",
    log:
        f"{RESULTS}/logs/simulate/{{problem}}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(60),
        gpu=1 if CONFIG.jobs.device.startswith("cuda") else 0,
    params:
        spec=spec_of("simulate"),
        state=f"{RESULTS}/state/simulate/{{problem}}",
    script:
        "../scripts/simulate.py"
