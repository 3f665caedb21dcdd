# Pregenerated sensor layouts of a case, and of those that need the same.


rule sensors:
    output:
        f"{RESULTS}/sensors/{{case}}.h5",
    log:
        f"{RESULTS}/logs/sensors/{{case}}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(1000),
        runtime=growing(30),
    params:
        spec=lambda w: PLAN.sensors(w.case),
    script:
        "../scripts/sensors.py"
