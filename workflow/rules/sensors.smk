# Pregenerated sensor layouts. Those of own data stand on the grid of their file.


rule sensors:
    input:
        functions=lambda w: (
            [f"{RESULTS}/data/{w.problem}.h5"] if PLAN.own_files(w.problem) else []
        ),
    output:
        f"{RESULTS}/sensors/{{problem}}/{{layout}}.h5",
    log:
        f"{RESULTS}/logs/sensors/{{problem}}/{{layout}}.log",
    conda:
        "../../environment.yml"
    resources:
        **cost(1000, 30),
    params:
        told=lambda w: Told(
            problem=w.problem,
            config=made("sensors", w.problem, f"{w.layout}.h5")[1],
            validation=CONFIG.problems[w.problem].validation,
            test=CONFIG.problems[w.problem].test,
            seed=CONFIG.seed,
            code=code("sensors", *problem_modules([w.problem])),
        ),
    script:
        "../scripts/sensors.py"
