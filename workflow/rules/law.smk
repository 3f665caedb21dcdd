# Another law of the input for a trained operator, a job for each trial: minutes beside the training.


rule law:
    input:
        functions=f"{RESULTS}/data/{{problem}}.h5",
        sensors=lambda w: PLAN.paths.layouts(trials("law", w)[0]),
        weights=lambda w: "{}/trial{}.safetensors".format(
            PLAN.paths.training(trials("law", w)[0], w.method), w.trial
        ),
    output:
        weights=f"{RESULTS}/law/{{problem}}/{{recipe}}/{{method}}-N{{pairs}}{{more}}/trial{{trial}}.safetensors",
        log=f"{RESULTS}/law/{{problem}}/{{recipe}}/{{method}}-N{{pairs}}{{more}}/trial{{trial}}.csv",
    log:
        f"{RESULTS}/logs/law/{{problem}}/{{recipe}}/{{method}}-N{{pairs}}{{more}}/trial{{trial}}.log",
    conda:
        "../../environment.yml"
    resources:
        **cost(8000, 60),
    params:
        told=lambda w: Told(
            trials("law", w)[1],  # law, training, noise_std
            problem=w.problem,
            trial=int(w.trial),
            seed=CONFIG.seed,
            code=code("law", *PLAN.models(trials("law", w)[0], w.method)),
        ),
    script:
        "../scripts/law.py"
