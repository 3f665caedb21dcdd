# Scores against the references: learned methods by stack, baselines and the reference itself once.


def weights_of(w):
    if w.method in CONFIG.experiments[w.experiment].methods:
        return {
            "weights": f"{RESULTS}/train/{w.experiment}/{w.method}/stack_{w.stack}.safetensors"
        }
    return {}


rule evaluate:
    input:
        unpack(weights_of),
        functions=lambda w: f"{RESULTS}/simulate/{PLAN.problem(w.experiment)}.h5",
        reference=f"{RESULTS}/reference/{{experiment}}/{{evaluation}}.h5",
    output:
        f"{RESULTS}/evaluate/{{experiment}}/{{evaluation}}/{{method}}/stack_{{stack}}.csv",
    log:
        f"{RESULTS}/logs/evaluate/{{experiment}}/{{evaluation}}/{{method}}/stack_{{stack}}.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=4000,
        runtime=240,
    params:
        spec=lambda w: PLAN.evaluate(w.experiment, w.evaluation, w.method),
    script:
        "../scripts/evaluate.py"
