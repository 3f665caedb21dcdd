# From scores to tables, figures, scorecard and the page that shows them all.


rule summary:
    input:
        lambda w: [
            file
            for files in PLAN.score_files(asked(w, PLAN.summarised())).values()
            for file in files
        ],
    output:
        each(f"{RESULTS}/summary/{{experiment}}.csv", experiment=PLAN.summarised()),
    log:
        log_of("summary", "{experiment}"),
    conda:
        "../../environment.yml"
    resources:
        **cost(2000, 10),
    params:
        jobs=lambda w: [
            Told(
                config=PLAN.part([e]),
                files=PLAN.score_files([e]),
                code=code("summary"),
            )
            for e in asked(w, PLAN.summarised())
        ],
    script:
        "../scripts/summary.py"


rule law_scores:
    input:
        lambda w: [f for fs in PLAN.score_files(PLAN.of_laws()).values() for f in fs],
    output:
        f"{RESULTS}/scores.csv",
    log:
        f"{RESULTS}/logs/law_scores.log",
    conda:
        "../../environment.yml"
    resources:
        **cost(2000, 10),
    params:
        told=lambda w: Told(
            config=PLAN.part(PLAN.of_laws()),
            files=PLAN.score_files(PLAN.of_laws()),
            code=code("law_scores"),
        ),
    script:
        "../scripts/law_scores.py"


rule table:
    input:
        lambda w: flat([PLAN.table_files(t) for t in asked(w, [*TABLES])]),
    output:
        tex=each(f"{RESULTS}/tables/{{table}}.tex", table=TABLES),
        csv=report(
            each(f"{RESULTS}/tables/{{table}}.csv", table=TABLES),
            caption="../report/table.rst",
            category="Tables",
            labels=lambda w: {"table": w.table} if w else {},
        ),
        json=each(f"{RESULTS}/tables/{{table}}.json", table=TABLES),
    log:
        log_of("tables", "{table}"),
    conda:
        "../../environment.yml"
    resources:
        **cost(2000, 10),
    params:
        captions=lambda w: {
            t: list(table_caption(CONFIG, t)) for t in asked(w, [*TABLES])
        },
        jobs=lambda w: [
            Told(
                table=t,
                config=PLAN.part(TABLES[t], table=t),
                files=PLAN.table_files(t),
                code=code("table"),
            )
            for t in asked(w, [*TABLES])
        ],
    script:
        "../scripts/table.py"


rule all_tables:
    input:
        tables=expand(f"{RESULTS}/tables/{{table}}.tex", table=TABLES),
        numbers=expand(f"{RESULTS}/tables/{{table}}.csv", table=TABLES),
        summaries=expand(
            f"{RESULTS}/summary/{{experiment}}.csv", experiment=PLAN.summarised()
        ),
        scorecard=f"{RESULTS}/scorecard.csv",
        config=f"{RESULTS}/config.json",
    output:
        tex=f"{RESULTS}/tables/all.tex",
        csv=f"{RESULTS}/tables/all.csv",
    log:
        f"{RESULTS}/logs/tables/all.log",
    conda:
        "../../environment.yml"
    resources:
        **cost(2000, 10),
    params:
        told=lambda w: Told(code=code("all_tables")),
    script:
        "../scripts/all_tables.py"


rule scorecard:
    input:
        expand(f"{RESULTS}/summary/{{experiment}}.csv", experiment=PLAN.summarised()),
    output:
        f"{RESULTS}/scorecard.csv",
    log:
        f"{RESULTS}/logs/scorecard.log",
    conda:
        "../../environment.yml"
    resources:
        **cost(2000, 10),
    params:
        told=lambda w: Told(config=PLAN.part(), code=code("scorecard")),
    script:
        "../scripts/scorecard.py"


rule figure:
    input:
        lambda w: flat([PLAN.figure_files(f) for f in asked(w, FIGURES)]),
    output:
        pdf=each(f"{RESULTS}/figures/{{figure}}.pdf", figure=FIGURES),
        png=report(
            each(f"{RESULTS}/figures/{{figure}}.png", figure=FIGURES),
            caption="../report/figure.rst",
            category="Figures",
            labels=lambda w: {"figure": w.figure} if w else {},
        ),
    log:
        log_of("figures", "{figure}"),
    conda:
        "../../environment.yml"
    resources:
        **cost(2000, 10),
    params:
        captions=lambda w: {f: list(caption(CONFIG, f)) for f in asked(w, FIGURES)},
        jobs=lambda w: [
            Told(told, code=code("figure", told["drawn_by"]))
            for told in map(PLAN.figure, asked(w, FIGURES))
        ],
    script:
        "../scripts/figure.py"


rule page:
    input:
        tables=expand(f"{RESULTS}/tables/{{table}}.json", table=TABLES),
        figures=expand(f"{RESULTS}/figures/{{name}}.png", name=FIGURES),
        scorecard=f"{RESULTS}/scorecard.csv",
        config=f"{RESULTS}/config.json",
        # Made last, so that the times of all stages are in the logs.
        all=f"{RESULTS}/tables/all.tex",
    output:
        report(
            f"{RESULTS}/report.html",
            caption="../report/page.rst",
            category="Everything on one page",
        ),
    log:
        f"{RESULTS}/logs/page.log",
    conda:
        "../../environment.yml"
    resources:
        **cost(2000, 10),
    params:
        told=lambda w: Told(
            config=CONFIG.model_dump(mode="json", exclude={"jobs", "results"}),
            captions={figure: list(caption(CONFIG, figure)) for figure in FIGURES},
            code=code("page"),
        ),
    script:
        "../scripts/page.py"
