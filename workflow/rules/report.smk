# From scores to tables, figures, scorecard and the page that shows them all.


rule summary:
    input:
        lambda w: sorted(
            {f for fs in PLAN.score_files(w.experiment).values() for f in fs}
        ),
    output:
        f"{RESULTS}/summary/{{experiment}}.csv",
    log:
        f"{RESULTS}/logs/summary/{{experiment}}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        spec=lambda w: PLAN.report(
            "uqsonet_study.report.summary",
            [w.experiment],
            files=PLAN.score_files(w.experiment),
        ),
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
        unpack(lambda w: PLAN.table_inputs(w.table)),
    output:
        tex=f"{RESULTS}/tables/{{table}}.tex",
        csv=report(
            f"{RESULTS}/tables/{{table}}.csv",
            caption="../report/table.rst",
            category="Tables",
            labels={"table": "{table}"},
        ),
        json=f"{RESULTS}/tables/{{table}}.json",
    log:
        f"{RESULTS}/logs/tables/{{table}}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        caption=lambda w: PLAN.caption(w.table, table=True),
        spec=lambda w: PLAN.report(
            "uqsonet_study.report.tables.write",
            TABLES[w.table],
            table=w.table,
            logs=PLAN.logs(w.table),
        ),
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
        unpack(lambda w: PLAN.figure(w.figure).inputs),
    output:
        pdf=f"{RESULTS}/figures/{{figure}}.pdf",
        png=report(
            f"{RESULTS}/figures/{{figure}}.png",
            caption="../report/figure.rst",
            category=lambda w: PLAN.figure(w.figure).category,
            labels=lambda w: PLAN.figure(w.figure).labels,
        ),
    log:
        f"{RESULTS}/logs/figures/{{figure}}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        caption=lambda w: PLAN.caption(w.figure),
        spec=lambda w: PLAN.figure(w.figure).spec,
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
