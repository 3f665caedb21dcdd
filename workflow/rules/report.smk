# From scores to tables, figures and the scorecard. `snakemake --report report.html` shows them.


rule summary:
    input:
        scores=lambda w: ask(STUDY.score_files, [w.experiment]),
    output:
        f"{RESULTS}/summary/{{experiment}}.csv",
    log:
        f"{RESULTS}/logs/summary/{{experiment}}.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        config=lambda w: STUDY.part([w.experiment]),
        code=lambda w: code("summary"),
    script:
        "../scripts/summary.py"


rule table:
    input:
        summaries=lambda w: ask(inputs.summaries_of_table, STUDY, w[0]),
        logs=lambda w: ask(inputs.logs_of_table, STUDY, w[0]),
        inference=lambda w: ask(inputs.timings_of_table, STUDY, w[0]),
        scores=lambda w: (
            [f"{RESULTS}/scores.csv"]
            if config["tables"][w.table]["layout"] == "laws"
            else []
        ),
    output:
        tex=f"{RESULTS}/tables/{{table}}.tex",
        csv=f"{RESULTS}/tables/{{table}}.csv",
        html=report(
            f"{RESULTS}/tables/{{table}}.html",
            caption="../report/table.rst",
            category="Tables",
            labels={"table": "{table}"},
        ),
    log:
        f"{RESULTS}/logs/tables/{{table}}.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        caption=lambda w: captions.table_caption(STUDY, w.table),
        config=lambda w: STUDY.part(
            STUDY.config.tables[w.table].experiments, tables=[w.table]
        ),
        code=lambda w: code("table"),
    script:
        "../scripts/table.py"


rule all_tables:
    input:
        tables=expand(f"{RESULTS}/tables/{{table}}.tex", table=config["tables"]),
        scorecard=f"{RESULTS}/scorecard.csv",
    output:
        tex=f"{RESULTS}/tables/all.tex",
        csv=f"{RESULTS}/tables/all.csv",
    log:
        f"{RESULTS}/logs/tables/all.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        code=lambda w: code("all_tables"),
    script:
        "../scripts/all_tables.py"


rule scorecard:
    input:
        summaries=lambda w: STUDY.summaries(config["experiments"]),
    output:
        f"{RESULTS}/scorecard.csv",
    log:
        f"{RESULTS}/logs/scorecard.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        config=lambda w: STUDY.part(
            config["experiments"], tables=inputs.error_tables(STUDY)
        ),
        code=lambda w: code("scorecard"),
    script:
        "../scripts/scorecard.py"


rule figure:
    input:
        summaries=lambda w: ask(inputs.summaries_of_figure, STUDY, w[0]),
        panels=lambda w: ask(inputs.panel_files, STUDY, w[0]),
    output:
        pdf=f"{RESULTS}/figures/{{figure}}.pdf",
        png=report(
            f"{RESULTS}/figures/{{figure}}.png",
            caption="../report/figure.rst",
            category="Figures",
            labels={"figure": "{figure}"},
        ),
    log:
        f"{RESULTS}/logs/figures/{{figure}}.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        caption=lambda w: captions.figure_caption(STUDY, w.figure),
        config=lambda w: STUDY.part(
            STUDY.config.figures[w.figure].shown, figures=[w.figure]
        ),
        code=lambda w: code(
            "figure",
            f"uqsonet_study.report.figures.{config['figures'][w.figure]['layout']}",
        ),
    script:
        "../scripts/figure.py"
