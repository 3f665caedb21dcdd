"""Damaged calls and files in short; `make attack` makes thousands."""

from collections import Counter
from types import ModuleType

import pytest

from tests.reliability import fuzz_calls, fuzz_files


@pytest.mark.parametrize(
    ("fuzzer", "count"),
    [
        (fuzz_calls, 60),
        pytest.param(fuzz_calls, 500, marks=pytest.mark.fuzz),
        pytest.param(fuzz_files, 500, marks=pytest.mark.fuzz),
    ],
)
def test_what_is_damaged_is_refused_by_one_of_our_errors(fuzzer: ModuleType, count: int) -> None:
    outcomes = Counter(outcome for _, outcome in fuzzer.judged(count))
    assert outcomes.total() == count and set(outcomes) <= set(fuzzer.FINE), outcomes
    assert outcomes["refused"] > count / 4, outcomes
