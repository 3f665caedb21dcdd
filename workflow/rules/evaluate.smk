# Scores against the references: all trials of a learned method in one job, baselines and the
# reference itself in another. And the time of one answer, measured.


rule evaluate:
    input:
        lambda w: flat(scored(w)),
    output:
        each(
            f"{RESULTS}/scores/{{case}}/{{method}}.{{evaluation}}.csv",
            zip,
            case=[case for case, _, _ in SCORES],
            method=[method for _, method, _ in SCORES],
            evaluation=[evaluation for _, _, evaluation in SCORES],
        ),
    log:
        log_of("scores", "{case}/{method}.{evaluation}"),
    conda:
        "../../environment.yml"
    resources:
        **cost(8000, 60),
    params:
        # Method, evaluation and its configuration, noise_std, training, cut_lines, seed, files.
        jobs=lambda w: [
            Told(
                told,
                code=code(
                    "evaluate",
                    *PLAN.models(CONFIG.cases[told["case"]], told["method"]),
                ),
            )
            for told in scored(w)
        ],
    script:
        "../scripts/evaluate.py"


rule inference:
    input:
        # The first trial of each method.
        weights=lambda w: [
            PLAN.paths.weights(CONFIG.cases[w.case], method)[0]
            for method in CONFIG.cases[w.case].methods
        ],
    output:
        f"{RESULTS}/inference/{{case}}.json",
    log:
        f"{RESULTS}/logs/inference/{{case}}.log",
    conda:
        "../../environment.yml"
    resources:
        **cost(2000, 10),
    params:
        told=lambda w: Told(
            problem=CONFIG.cases[w.case].problem,
            methods=CONFIG.cases[w.case].methods,
            sensors=max(1, CONFIG.cases[w.case].sensors.counts[-1]),
            code=code("inference"),
        ),
    script:
        "../scripts/inference.py"
