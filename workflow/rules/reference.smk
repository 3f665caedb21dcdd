# Exact reference posteriors of the observation sets of an evaluation. Where they are sampled set by
# set, several cores share a job; finished parts are no output, so a killed job continues.


rule reference:
    input:
        functions=f"{RESULTS}/data/{{problem}}.h5",
        sensors=f"{RESULTS}/sensors/{{problem}}/{{layout}}.h5",
    output:
        f"{RESULTS}/reference/{{problem}}/{{layout}}/{{noise}}/{{evaluation}}.h5",
    log:
        f"{RESULTS}/logs/reference/{{problem}}/{{layout}}/{{noise}}/{{evaluation}}.log",
    wildcard_constraints:
        evaluation="(validation|paper|precise)[^/]*",
    conda:
        "../../environment.yml"
    threads: lambda w: PLAN.workers(posterior(w)[0])
    resources:
        mem_mb=growing(4000),
        runtime=lambda w, attempt: (
            attempt * (480 if w.evaluation.startswith("precise") else 60)
        ),
    params:
        # The configuration of the evaluation, and noise_std.
        told=lambda w: Told(
            problem=w.problem,
            split="validation" if w.evaluation.startswith("validation") else "test",
            evaluation=w.evaluation.partition("-")[0],
            **posterior(w)[1],
            seed=CONFIG.seed,
            code=code("reference", *problem_modules([w.problem])),
        ),
        state=f"{RESULTS}/state/reference/{{problem}}/{{layout}}/{{noise}}/{{evaluation}}",
    script:
        "../scripts/reference.py"
