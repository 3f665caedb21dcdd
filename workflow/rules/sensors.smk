# Pregenerated sensor layouts.


rule sensors:
    input:
        functions=input_of("sensors", "functions"),
    output:
        f"{RESULTS}/sensors/{{name}}.h5",
    log:
        f"{RESULTS}/logs/sensors/{{name}}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(1000),
        runtime=growing(30),
    params:
        spec=spec_of("sensors"),
    script:
        "../scripts/sensors.py"
