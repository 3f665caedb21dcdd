# Pregenerated sensor layouts of a case, and of those that need the same.


rule sensors:
    output:
        f"{RESULTS}/sensors/{{case}}.h5",
    log:
        f"{RESULTS}/logs/sensors/{{case}}.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=1000,
        runtime=30,
    params:
        spec=lambda w: PLAN.sensors(w.case),
    script:
        "../scripts/sensors.py"
