# Exact reference posteriors of the observation sets of an evaluation. Where they are sampled set by
# set, several cores share a job; finished parts are no output, so a killed job continues.


rule reference:
    input:
        functions=input_of("reference", "functions"),
        sensors=input_of("reference", "sensors"),
        output_sensors=input_of("reference", "output_sensors"),
    output:
        f"{RESULTS}/reference/{{name}}.h5",
    log:
        f"{RESULTS}/logs/reference/{{name}}.log",
    conda:
        "../../environment.yml"
    threads: lambda w: found("reference")(w).workers
    resources:
        mem_mb=growing(4000),
        runtime=lambda w, attempt: attempt * (480 if "precise-" in w.name else 60),
    params:
        spec=spec_of("reference"),
        state=f"{RESULTS}/state/reference/{{name}}",
    script:
        "../scripts/reference.py"
