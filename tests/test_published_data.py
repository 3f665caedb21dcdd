"""What is in `published/`: its ledger, tables that name its files, a shard from its seed."""

from __future__ import annotations

import json
import re
import subprocess
from decimal import Decimal
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from uqsonet.files import array_digest
from uqsonet.networks.devices import processor
from uqsonet_study.problems import get_problem
from uqsonet_study.simulation import simulate_shard

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = ROOT / "published"
LEDGER = (PUBLISHED / "README.md").read_text(encoding="utf-8")
FILES = [path for path in PUBLISHED.rglob("*") if path.is_file()]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")

Table = list[list[str]]
"""Cells of a Markdown table, without its line of dashes. The first row has the headings."""


def cells(text: str) -> Table:
    """Return the table at the beginning of a text."""
    lines = re.match(r"\s*((?:\|.*(?:\n|$))*)", text)
    assert lines is not None
    rows = [row.strip().strip("|").split("|") for row in lines[1].splitlines()]
    return [[cell.strip() for cell in row] for row in rows[:1] + rows[2:]]


def marked(page: Path) -> list[tuple[str, Table]]:
    """Return marks and tables of a page: ``<!-- from: FILE ... [xFACTOR] [by COLUMN,...] -->``."""
    _, *parts = re.split(r"<!-- from: (.+?) -->", page.read_text(encoding="utf-8"))
    return [(mark, cells(text)) for mark, text in zip(parts[::2], parts[1::2], strict=True)]


def numbers(text: str) -> list[Decimal]:
    """Return the numbers of a text that do not belong to a word."""
    return [Decimal(found.replace(",", "")) for found in NUMBER.findall(text)]


def missing(mark: str, table: Table) -> list[str]:
    """Return the rows of a table of which a number is not in the files that its mark names.

    A number may be rounded, and `FACTOR` times that of the file. With `by`, files are averaged and
    counted over rows that agree in these columns. A heading that is also a column of the files
    selects their rows, where a cell is a value of this column.
    """
    files, factor, columns = re.fullmatch(r"(.+?)(?: x(\S+))?(?: by (\S+))?", mark).groups()
    data: pd.DataFrame = pd.concat([pd.read_csv(ROOT / name) for name in files.split()])
    if columns:
        keys = columns.split(",")
        sizes = (data.groupby(keys[:n]).size().reset_index() for n in range(1, len(keys)))
        data = pd.concat([data.groupby(keys).mean(numeric_only=True).reset_index(), *sizes])
    head, *rows = table
    found = []
    for row in rows:
        chosen = data
        for name, cell in zip(head, row, strict=True):
            if name in data:
                same = chosen.loc[chosen[name].astype(str) == cell.strip("`*").replace(",", "")]
                chosen = chosen if same.empty else same
        values = np.array([*map(float, numbers(chosen.to_csv(sep="\t", index=False)))])
        values = np.append(values, values * float(factor or 1))
        short = np.array([float(f"{value:.3g}") for value in values])
        for number in numbers(" ".join(row)):
            half = 0.5 * 10.0 ** int(number.as_tuple().exponent)
            near = np.abs(values - float(number)) <= half * (1 + 1e-6)
            if not (near | (short == float(number))).any():
                found.append(f"{number} in {' | '.join(row)}")
    return found


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.stem)
def test_tables_that_name_a_file_have_its_numbers(page: Path) -> None:
    for mark, table in marked(page):
        assert len(table) > 1, f"no table below {mark}"
        assert missing(mark, table) == [], mark


def test_some_tables_name_a_file() -> None:
    assert sum(len(marked(page)) for page in PAGES[1:]) > 0


def test_highlights_are_means_and_counts_of_the_files_that_they_name() -> None:
    ((mark, (_, *rows)),) = marked(ROOT / "README.md")
    files = (pd.read_csv(ROOT / name) for name in mark.split())
    card, table, posterior, people, time, gaps = files
    ours = card.query("method == 'uqsonet' and metric == 'err_mean'")
    good = (card["precise"] <= card["paper"]).sum()
    inverse = table.query("problem == 'poisson' and direction == 'inverse' and pairs != 500")
    inverse = inverse.drop_duplicates("method").set_index("method")["err_mean"]
    whole = 100 * posterior.pivot(index="method", columns="problem", values="mean")
    whole = whole[["poisson", "darcy"]]
    pairs = posterior.query("method == 'ours'")["pairs"]
    people = people.set_index(["data", "sensors", "method"])
    crps = people["crps"].unstack()
    bound = crps.drop(columns="uqsonet").min(axis=1) + people["crps_se"].xs("uqsonet", level=2)
    last = time.query("time == 10 and metric == 'error'").set_index("method")["value"]
    known = gaps.query("sensors == 10 and metric == 'mean'").set_index("seen")["value"]
    expected = [
        [ours["precise"].mean(), good, len(card), ours["paper"].mean()],
        [inverse["exact"], inverse["ours"]],
        [*whole.loc["floor"], *whole.loc["ours"], *pairs, *whole.loc["DDIS (published)"], 50_000],
        [(crps["uqsonet"] <= bound).sum(), len(crps)],
        [last[name] for name in ("filter", "one_shot", "ensemble")],
        [known[seen] for seen in ("all", "20")],
    ]
    for row, values in zip(rows, expected, strict=True):
        shown = numbers(" ".join(row[1:]))
        digits = [-int(number.as_tuple().exponent) for number in shown]
        rounded = [f"{value:.{n}f}" for value, n in zip(values, digits, strict=True)]
        assert [*map(str, shown)] == rounded, row


def test_the_ledger_has_every_file_and_names_no_other() -> None:
    _, *rows = cells(LEDGER.partition("## Files\n")[2])
    patterns = {name for row in rows for name in re.findall("`(.+?)`", row[0].partition(":")[0])}
    names = [path.relative_to(PUBLISHED).as_posix() for path in FILES]
    assert [p for p in patterns if not any(fnmatch(name, p) for name in names)] == []
    assert [n for n in names if not any(fnmatch(n, p) for p in patterns)] == ["README.md"]
    for row in rows:
        assert re.search(r"\b[0-9a-f]{7,40}\b", row[3]), row


def test_commits_of_the_ledger_exist() -> None:
    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )

    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("not a clone with all of the history")
    commits = set(re.findall(r"\b(?=[a-f]*\d)[0-9a-f]{7,40}\b", LEDGER))
    assert len(commits) > 20
    assert [c for c in commits if git("cat-file", "-e", f"{c}^{{commit}}").returncode] == []


def test_published_files_are_small() -> None:
    assert sum(path.stat().st_size for path in FILES) < 7_000_000


@pytest.mark.parametrize(
    "name",
    [
        *("diffusion1d", "poisson2d", "elliptic_sde1d"),
        *(pytest.param(n, marks=pytest.mark.long) for n in ("elliptic_sde2d", "navier_stokes")),
    ],
)
def test_a_shard_of_the_full_set_is_made_again(name: str) -> None:
    """Byte for byte on the same processor; elsewhere to the rounding of another BLAS."""
    record = json.loads((PUBLISHED / f"data/{name}.json").read_text())
    config = record["config"]
    assert config["training"] == (20_000 if name == "diffusion1d" else 80_000)
    shard = simulate_shard(get_problem(name), record["seed"], "test", 0, config["shard"])
    for key, values in zip(("kappa", "u"), shard, strict=True):
        array = values[: config["test"]].float().numpy()
        probe = np.array(record["probe"][key])
        np.testing.assert_allclose(array[0, :: array.shape[1] // 7], probe, rtol=1e-4, atol=1e-5)
        if record["processor"] == processor():
            assert array_digest(array) == record["arrays"][f"test/{key}"]["sha256"]
