# Scores against the references: all trials of a learned method in one job, baselines and the reference
# itself in another (recipe `untrained`). And the time of one answer, measured.


rule evaluate:
    input:
        functions=f"{RESULTS}/data/{{problem}}.h5",
        reference=f"{RESULTS}/reference/{{problem}}/{{given}}/{{evaluation}}.h5",
        weights=lambda w: scored(w).weights,
    output:
        f"{RESULTS}/scores/{{problem}}/{{given}}/{{recipe}}/{{answer}}.{{evaluation}}.csv",
    log:
        f"{RESULTS}/logs/scores/{{problem}}/{{given}}/{{recipe}}/{{answer}}.{{evaluation}}.log",
    benchmark:
        f"{RESULTS}/times/scores/{{problem}}/{{given}}/{{recipe}}/{{answer}}.{{evaluation}}.tsv"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=growing(8000),
        runtime=growing(60),
    params:
        method=lambda w: scored(w).method,
        ensemble=lambda w: scored(w).ensemble,
        pairs=lambda w: scored(w).N,
        noise=lambda w: scored(w).noise,
        cut_lines=lambda w: scored(w).cut_lines,
        evaluation=lambda w: STUDY.evaluation(w.problem, w.evaluation).model_dump(),
        seed=config["seed"],
        code=lambda w: code("evaluate", *scored(w).modules),
    script:
        "../scripts/evaluate.py"


rule inference:
    input:
        # The first trial of each method, in the first case.
        weights=lambda w: STUDY.first_weights(w.experiment),
    output:
        f"{RESULTS}/inference/{{experiment}}.json",
    log:
        f"{RESULTS}/logs/inference/{{experiment}}.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        methods=lambda w: config["experiments"][w.experiment]["methods"],
        sensors=lambda w: STUDY.of([w.experiment])[0].counts[-1],
        code=lambda w: code("inference"),
    script:
        "../scripts/inference.py"
