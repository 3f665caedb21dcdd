"""What `interpretations.csv` says, for the page and for docs/interpretations.md."""

import pandas as pd
import pytest

from uqsonet.errors import DataError
from uqsonet_study.report.page import interpretations as module
from uqsonet_study.report.page.interpretations import KINDS, load_interpretations


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_count_up_within_each_kind(kind: str) -> None:
    numbers = load_interpretations(kind)["number"].tolist()
    assert numbers == [str(k) for k in range(1, len(numbers) + 1)] != []


def test_every_row_is_complete_and_every_difference_says_why() -> None:
    for kind in KINDS:
        assert load_interpretations(kind)[["paper", "here"]].map(len).gt(0).all(axis=None)
    assert load_interpretations("difference")["why"].str.len().gt(0).all()


def test_an_unknown_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    table = load_interpretations("difference").assign(kind="poem")
    monkeypatch.setattr(module.pd, "read_csv", lambda *_, **__: pd.DataFrame(table))
    with pytest.raises(DataError, match=r"interpretations\.csv.*poem"):
        load_interpretations("difference")
