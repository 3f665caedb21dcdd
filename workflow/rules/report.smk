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
        spec=PLAN.report("uqsonet_study.report.tables.write"),
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
        spec=PLAN.report("uqsonet_study.report.scorecard"),
    script:
        "../scripts/scorecard.py"


rule schematic_figure:
    output:
        pdf=f"{RESULTS}/figures/{{figure}}.pdf",
        png=report(
            f"{RESULTS}/figures/{{figure}}.png",
            caption="../report/figure.rst",
            category="Figures of the paper",
            labels={"figure": "{figure}"},
        ),
    log:
        f"{RESULTS}/logs/figures/{{figure}}.log",
    wildcard_constraints:
        figure=PLAN.figures_with("schematic"),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        caption=lambda w: PLAN.caption(w.figure),
        spec=PLAN.schematic(),
    script:
        "../scripts/schematic_figure.py"


rule posterior_figure:
    input:
        functions=lambda w: [p["functions"] for p in PLAN.panels(w.figure)],
        references=lambda w: [p["reference"] for p in PLAN.panels(w.figure)],
        weights=lambda w: [f for p in PLAN.panels(w.figure) for f in p["weights"]],
    output:
        pdf=f"{RESULTS}/figures/{{figure}}.pdf",
        png=report(
            f"{RESULTS}/figures/{{figure}}.png",
            caption="../report/figure.rst",
            category="Figures of the paper",
            labels={"figure": "{figure}"},
        ),
    log:
        f"{RESULTS}/logs/figures/{{figure}}.log",
    wildcard_constraints:
        figure=PLAN.figures_with("posterior"),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        caption=lambda w: PLAN.caption(w.figure),
        spec=lambda w: PLAN.report(
            "uqsonet_study.report.figures.posterior",
            FIGURES[w.figure],
            figure=w.figure,
            panels=PLAN.panels(w.figure),
        ),
    script:
        "../scripts/posterior_figure.py"


rule compare_figure:
    input:
        lambda w: expand(f"{RESULTS}/summary/{{e}}.csv", e=FIGURES[w.figure]),
    output:
        pdf=f"{RESULTS}/figures/{{figure}}.pdf",
        png=report(
            f"{RESULTS}/figures/{{figure}}.png",
            caption="../report/figure.rst",
            category="Figures of the paper",
            labels={"figure": "{figure}"},
        ),
    log:
        f"{RESULTS}/logs/figures/{{figure}}.log",
    wildcard_constraints:
        figure=PLAN.figures_with("compare"),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        caption=lambda w: PLAN.caption(w.figure),
        spec=lambda w: PLAN.report(
            "uqsonet_study.report.figures.sweeps", FIGURES[w.figure], figure=w.figure
        ),
    script:
        "../scripts/compare_figure.py"


rule calibration_figure:
    input:
        lambda w: expand(f"{RESULTS}/summary/{{e}}.csv", e=FIGURES[w.figure]),
    output:
        pdf=f"{RESULTS}/figures/{{figure}}.pdf",
        png=report(
            f"{RESULTS}/figures/{{figure}}.png",
            caption="../report/figure.rst",
            category="More figures",
            labels={"figure": "{figure}"},
        ),
    log:
        f"{RESULTS}/logs/figures/{{figure}}.log",
    wildcard_constraints:
        figure=PLAN.figures_with("calibration"),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        caption=lambda w: PLAN.caption(w.figure),
        spec=lambda w: PLAN.report(
            "uqsonet_study.report.figures.calibration", FIGURES[w.figure], figure=w.figure
        ),
    script:
        "../scripts/calibration_figure.py"


rule spectra_figure:
    input:
        functions=lambda w: [p["functions"] for p in PLAN.panels(w.figure)],
        references=lambda w: [p["reference"] for p in PLAN.panels(w.figure)],
        weights=lambda w: [f for p in PLAN.panels(w.figure) for f in p["weights"]],
    output:
        pdf=f"{RESULTS}/figures/{{figure}}.pdf",
        png=report(
            f"{RESULTS}/figures/{{figure}}.png",
            caption="../report/figure.rst",
            category="More figures",
            labels={"figure": "{figure}"},
        ),
    log:
        f"{RESULTS}/logs/figures/{{figure}}.log",
    wildcard_constraints:
        figure=PLAN.figures_with("spectra"),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        caption=lambda w: PLAN.caption(w.figure),
        spec=lambda w: PLAN.report(
            "uqsonet_study.report.figures.spectra",
            FIGURES[w.figure],
            figure=w.figure,
            panels=PLAN.panels(w.figure),
        ),
    script:
        "../scripts/spectra_figure.py"


rule data_figure:
    input:
        functions=lambda w: PLAN.picture_inputs(w.experiment)["functions"],
        reference=lambda w: PLAN.picture_inputs(w.experiment)["reference"],
    output:
        pdf=f"{RESULTS}/figures/{{experiment}}_data.pdf",
        png=report(
            f"{RESULTS}/figures/{{experiment}}_data.png",
            caption="../report/figure.rst",
            category="Data and training",
            labels={"experiment": "{experiment}", "shows": "data"},
        ),
    log:
        f"{RESULTS}/logs/figures/{{experiment}}_data.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        caption=lambda w: PLAN.caption(f"{w.experiment}_data"),
        spec=lambda w: PLAN.report("uqsonet_study.report.figures.data", [w.experiment]),
    script:
        "../scripts/data_figure.py"


rule training_figure:
    input:
        lambda w: PLAN.picture_inputs(w.experiment)["logs"],
    output:
        pdf=f"{RESULTS}/figures/{{experiment}}_training.pdf",
        png=report(
            f"{RESULTS}/figures/{{experiment}}_training.png",
            caption="../report/figure.rst",
            category="Data and training",
            labels={"experiment": "{experiment}", "shows": "training"},
        ),
    log:
        f"{RESULTS}/logs/figures/{{experiment}}_training.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        caption=lambda w: PLAN.caption(f"{w.experiment}_training"),
        spec=lambda w: PLAN.report("uqsonet_study.report.figures.posterior", [w.experiment]),
    script:
        "../scripts/training_figure.py"


rule layouts_figure:
    input:
        lambda w: PLAN.picture_inputs(w.experiment)["layouts"],
    output:
        pdf=f"{RESULTS}/figures/{{experiment}}_layouts.pdf",
        png=report(
            f"{RESULTS}/figures/{{experiment}}_layouts.png",
            caption="../report/figure.rst",
            category="Data and training",
            labels={"experiment": "{experiment}", "shows": "layouts"},
        ),
    log:
        f"{RESULTS}/logs/figures/{{experiment}}_layouts.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        caption=lambda w: PLAN.caption(f"{w.experiment}_layouts"),
        spec=lambda w: PLAN.report("uqsonet_study.report.figures.layouts", [w.experiment]),
    script:
        "../scripts/layouts_figure.py"


rule page:
    input:
        tables=expand(f"{RESULTS}/tables/{{table}}.json", table=TABLES),
        figures=expand(f"{RESULTS}/figures/{{name}}.png", name=[*FIGURES, *PICTURES]),
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
        spec=PLAN.page(),
    script:
        "../scripts/page.py"
