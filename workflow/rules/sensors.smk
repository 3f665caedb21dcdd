# Pregenerated sensor layouts of an experiment.


rule sensors:
    output:
        f"{RESULTS}/sensors/{{experiment}}.h5",
    log:
        f"{RESULTS}/logs/sensors/{{experiment}}.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=1000,
        runtime=30,
    params:
        spec=lambda w: PLAN.sensors(w.experiment),
    script:
        "../scripts/sensors.py"
