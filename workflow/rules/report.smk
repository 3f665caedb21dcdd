# From scores to tables, figures, scorecard and the page that shows them all.


rule summary:
    input:
        lambda w: sorted(
            {
                f
                for e in made(w, PLAN.summarised())
                for fs in PLAN.score_files(e).values()
                for f in fs
            }
        ),
    output:
        files_of(f"{RESULTS}/summary/{{experiment}}.csv", experiment=PLAN.summarised()),
    log:
        log_of("summary", "experiment"),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        specs=lambda w: {
            e: PLAN.report(
                "uqsonet_study.report.summary", [e], files=PLAN.score_files(e)
            )
            for e in made(w, PLAN.summarised())
        },
    script:
        "../scripts/summary.py"


rule law_scores:
    input:
        lambda w: sorted({f for fs in PLAN.law_files().values() for f in fs}),
    output:
        f"{RESULTS}/scores.csv",
    log:
        f"{RESULTS}/logs/law_scores.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        spec=lambda w: PLAN.report(
            "uqsonet_study.report.law_scores",
            PLAN.of_laws(),
            files=PLAN.law_files(),
        ),
    script:
        "../scripts/law_scores.py"


rule table:
    input:
        unpack(lambda w: merged(map(PLAN.table_inputs, made(w, [*TABLES])))),
    output:
        tex=files_of(f"{RESULTS}/tables/{{table}}.tex", table=TABLES),
        csv=report(
            files_of(f"{RESULTS}/tables/{{table}}.csv", table=TABLES),
            caption="../report/table.rst",
            category="Tables",
            labels=lambda w: {"table": w.table} if w else {},
        ),
        json=files_of(f"{RESULTS}/tables/{{table}}.json", table=TABLES),
    log:
        log_of("tables", "table"),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        captions=lambda w: {t: PLAN.caption(t, table=True) for t in made(w, [*TABLES])},
        specs=lambda w: {
            t: PLAN.report(
                "uqsonet_study.report.tables.write",
                TABLES[t],
                table=t,
                logs=PLAN.logs(t),
            )
            for t in made(w, [*TABLES])
        },
        files=lambda w: {t: PLAN.table_inputs(t) for t in made(w, [*TABLES])},
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
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        spec=lambda w: PLAN.report("uqsonet_study.report.tables.write"),
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
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        spec=lambda w: PLAN.report("uqsonet_study.report.scorecard"),
    script:
        "../scripts/scorecard.py"


rule figure:
    input:
        unpack(lambda w: merged(PLAN.figure(f).inputs for f in made(w, FIGURES))),
    output:
        pdf=files_of(f"{RESULTS}/figures/{{figure}}.pdf", figure=FIGURES),
        png=report(
            files_of(f"{RESULTS}/figures/{{figure}}.png", figure=FIGURES),
            caption="../report/figure.rst",
            category=lambda w: PLAN.figure(w.figure).category if w else "Figures",
            labels=lambda w: PLAN.figure(w.figure).labels if w else {},
        ),
    log:
        log_of("figures", "figure"),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        captions=lambda w: {f: PLAN.caption(f) for f in made(w, FIGURES)},
        specs=lambda w: {f: PLAN.figure(f).spec for f in made(w, FIGURES)},
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
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        spec=lambda w: PLAN.page(),
    script:
        "../scripts/page.py"
