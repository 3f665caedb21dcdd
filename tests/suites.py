"""Two suites: the first is for every change, the second for everything else.

`make test` runs the first (``pytest --first``), `make test-all` both. A test belongs to the first
suite unless one of the marks below says why it does not. What takes more than `BUDGET` seconds of
processor time needs such a mark, or it fails.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

LATER = ("long", "dag", "kill", "fuzz", "docs", "browser", "latex", "slurm", "pyemma")
"""Marks of the second suite; pyproject.toml says what each means."""

BUDGET = 45.0
"""Seconds of processor time that a test of the first suite may take, its processes included: twice
what the longest ones take on a quiet machine, as others are slower or busy."""

SHARED = ("session", "package", "module")
"""Scopes of fixtures whose time no single test is to blame for."""


def is_later(item: pytest.Item) -> bool:
    """Return whether a test belongs to the second suite alone."""
    return any(item.get_closest_marker(mark) for mark in LATER)


def processor_time() -> float:
    """Return the processor time of this process and of its finished children, in seconds."""
    return sum(os.times()[:4])


class Budget:
    """Fails a test of the first suite that takes too much processor time.

    Attributes
    ----------
    shared : float
        Seconds that went into shared fixtures since the test began.
    """

    def __init__(self) -> None:
        self.shared = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        """Measure what goes into shared fixtures."""
        start, before = processor_time(), self.shared
        try:
            return (yield)
        finally:
            if fixturedef.scope in SHARED:  # those that it asks for are part of its own time
                self.shared = before + processor_time() - start

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note when a test begins."""
        self.start, self.shared = processor_time(), 0.0
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the seconds to a report, and fail a test that took too many."""
        report = yield
        if call.when == "call":
            seconds = processor_time() - self.start - self.shared
            report.user_properties.append(("processor", seconds))
            if report.passed and seconds > BUDGET and not is_later(item):
                report.outcome = "failed"
                report.longrepr = (
                    f"{seconds:.1f} s of processor time, {BUDGET:g} s are allowed: "
                    f"mark it (one of {', '.join(LATER)}), or make it cheaper"
                )
        return report


def dearest(reports: list[pytest.TestReport], number: int = 10) -> list[tuple[float, str]]:
    """Return processor time and name of the tests that took most of it."""
    found = [
        (dict(report.user_properties).get("processor", 0.0), report.nodeid) for report in reports
    ]
    return sorted(found, reverse=True)[:number]
