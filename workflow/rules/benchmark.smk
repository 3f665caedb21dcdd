# Sparse sensors of one field, the whole of the other, beside published figures: a job for each
# problem and number of pairs (0: the exact answer), and their table.
BENCHMARK = CONFIG.benchmark


rule benchmark:
    input:
        weights=lambda w: PLAN.benchmark_weights(w.entry, int(w.number)),
    output:
        f"{RESULTS}/benchmark/{{entry}}-{{number}}.csv",
    log:
        f"{RESULTS}/logs/benchmark/{{entry}}-{{number}}.log",
    wildcard_constraints:
        entry="|".join(BENCHMARK.problems),
        number=r"\d+",
    conda:
        "../../environment.yml"
    resources:
        **cost(16000, 240),
    params:
        told=lambda w: Told(
            name=w.entry,
            problem=BENCHMARK.problems[w.entry].problem,
            config=PLAN.benchmark(w.entry),
            pairs=int(w.number),
            seed=CONFIG.seed,
            code=code(
                "benchmark", *problem_modules([BENCHMARK.problems[w.entry].problem])
            ),
        ),
    script:
        "../scripts/benchmark.py"


rule benchmark_table:
    input:
        scores=[
            f"{RESULTS}/benchmark/{name}-{pairs}.csv"
            for name, one in BENCHMARK.problems.items()
            for pairs in ([0] if one.exact else []) + one.pairs
        ],
        published=BENCHMARK.published,
    output:
        csv=f"{RESULTS}/benchmark/table.csv",
        tex=f"{RESULTS}/benchmark/table.tex",
        md=f"{RESULTS}/benchmark/table.md",
    log:
        f"{RESULTS}/logs/benchmark/table.log",
    conda:
        "../../environment.yml"
    resources:
        **cost(2000, 10),
    script:
        "../scripts/benchmark_table.py"
