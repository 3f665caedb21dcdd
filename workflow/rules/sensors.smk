# Pregenerated sensor layouts of an experiment.


rule sensors:
    output:
        f"{RESULTS}/sensors/{{experiment}}.h5",
    params:
        spec=lambda w: PLAN.sensors(w.experiment),
    log:
        f"{RESULTS}/logs/sensors/{{experiment}}.log",
    resources:
        mem_mb=1000,
        runtime=30,
    conda:
        "../../environment.yml"
    script:
        "../scripts/sensors.py"
