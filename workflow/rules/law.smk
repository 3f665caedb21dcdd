# Another law of the input for a trained operator, a job for each trial: minutes beside the training.


rule law:
    input:
        functions=f"{RESULTS}/data/{{problem}}.h5",
        sensors=lambda w: PLAN.paths.layouts(fitted(w)),
        weights=lambda w: (
            f"{PLAN.paths.training(fitted(w), w.method)}/trial{w.trial}.safetensors"
        ),
    output:
        weights=f"{RESULTS}/law/{{problem}}/{{recipe}}/{{method}}-N{{pairs}}{{more}}/trial{{trial}}.safetensors",
        log=f"{RESULTS}/law/{{problem}}/{{recipe}}/{{method}}-N{{pairs}}{{more}}/trial{{trial}}.csv",
    log:
        f"{RESULTS}/logs/law/{{problem}}/{{recipe}}/{{method}}-N{{pairs}}{{more}}/trial{{trial}}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(8000),
        runtime=growing(60),
    params:
        told=lambda w: Told(
            problem=w.problem,
            law=CONFIG.law_of(fitted(w).experiment, w.method).law,
            training=int(w.pairs),
            noise_std=fitted(w).noise_std,
            trial=int(w.trial),
            seed=CONFIG.seed,
            code=code("law", PLAN.model(fitted(w), w.method)),
        ),
    script:
        "../scripts/law.py"
