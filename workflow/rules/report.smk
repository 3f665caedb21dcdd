# From scores to tables, scorecard and figures.


rule summary:
    input:
        lambda w: PLAN.scores(w.experiment),
    output:
        f"{RESULTS}/summary/{{experiment}}.csv",
    log:
        f"{RESULTS}/logs/summary/{{experiment}}.log",
    conda:
        "../../environment.yml"
    params:
        spec=lambda w: PLAN.report("uqsonet.report.summary", w.experiment),
    script:
        "../scripts/summary.py"


rule table:
    input:
        f"{RESULTS}/summary/{{experiment}}.csv",
    output:
        tex=f"{RESULTS}/tables/{{experiment}}.tex",
        csv=f"{RESULTS}/tables/{{experiment}}.csv",
    log:
        f"{RESULTS}/logs/tables/{{experiment}}.log",
    conda:
        "../../environment.yml"
    params:
        spec=lambda w: PLAN.report("uqsonet.report.tables", w.experiment),
    script:
        "../scripts/table.py"


rule all_tables:
    input:
        tables=expand(f"{RESULTS}/tables/{{experiment}}.tex", experiment=EXPERIMENTS),
        numbers=expand(f"{RESULTS}/tables/{{experiment}}.csv", experiment=EXPERIMENTS),
        scorecard=f"{RESULTS}/scorecard.csv",
        config=f"{RESULTS}/config.json",
    output:
        tex=f"{RESULTS}/tables/all.tex",
        csv=f"{RESULTS}/tables/all.csv",
    log:
        f"{RESULTS}/logs/tables/all.log",
    conda:
        "../../environment.yml"
    params:
        spec=PLAN.report("uqsonet.report.tables"),
    script:
        "../scripts/all_tables.py"


rule scorecard:
    input:
        expand(f"{RESULTS}/summary/{{experiment}}.csv", experiment=EXPERIMENTS),
    output:
        f"{RESULTS}/scorecard.csv",
    log:
        f"{RESULTS}/logs/scorecard.log",
    conda:
        "../../environment.yml"
    params:
        spec=PLAN.report("uqsonet.report.scorecard"),
    script:
        "../scripts/scorecard.py"


rule data_figure:
    input:
        functions=lambda w: f"{RESULTS}/simulate/{PLAN.problem(w.experiment)}.h5",
        reference=f"{RESULTS}/reference/{{experiment}}/paper.h5",
    output:
        pdf=f"{RESULTS}/figures/{{experiment}}_data.pdf",
        png=f"{RESULTS}/figures/{{experiment}}_data.png",
    log:
        f"{RESULTS}/logs/figures/{{experiment}}_data.log",
    conda:
        "../../environment.yml"
    params:
        spec=lambda w: PLAN.report("uqsonet.report.data_figure", w.experiment),
    script:
        "../scripts/data_figure.py"


rule posterior_figure:
    input:
        functions=lambda w: f"{RESULTS}/simulate/{PLAN.problem(w.experiment)}.h5",
        reference=f"{RESULTS}/reference/{{experiment}}/paper.h5",
        weights=lambda w: PLAN.trained(w.experiment, "uqsonet", "safetensors")[0],
    output:
        pdf=f"{RESULTS}/figures/{{experiment}}_posterior.pdf",
        png=f"{RESULTS}/figures/{{experiment}}_posterior.png",
    log:
        f"{RESULTS}/logs/figures/{{experiment}}_posterior.log",
    conda:
        "../../environment.yml"
    params:
        spec=lambda w: PLAN.report("uqsonet.report.figures", w.experiment),
    script:
        "../scripts/posterior_figure.py"


rule training_figure:
    input:
        lambda w: [
            log
            for method in CONFIG.experiments[w.experiment].methods
            for log in PLAN.trained(w.experiment, method, "csv")
        ],
    output:
        pdf=f"{RESULTS}/figures/{{experiment}}_training.pdf",
        png=f"{RESULTS}/figures/{{experiment}}_training.png",
    log:
        f"{RESULTS}/logs/figures/{{experiment}}_training.log",
    conda:
        "../../environment.yml"
    params:
        spec=lambda w: PLAN.report("uqsonet.report.figures", w.experiment),
    script:
        "../scripts/training_figure.py"


rule layouts_figure:
    input:
        f"{RESULTS}/sensors/{{experiment}}.h5",
    output:
        pdf=f"{RESULTS}/figures/{{experiment}}_layouts.pdf",
        png=f"{RESULTS}/figures/{{experiment}}_layouts.png",
    log:
        f"{RESULTS}/logs/figures/{{experiment}}_layouts.log",
    conda:
        "../../environment.yml"
    params:
        spec=lambda w: PLAN.report("uqsonet.report.layouts_figure", w.experiment),
    script:
        "../scripts/layouts_figure.py"
