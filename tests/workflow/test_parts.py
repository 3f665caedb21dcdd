"""The whole DAG at smoke scale, in parts that run beside one another and before other tests."""

import pytest

from tests.workflow.conftest import SMOKE, Parts, Project, targets_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(0)]  # Snakemake is watched


@pytest.mark.parametrize("name", Parts.NAMES)
def test_a_part_runs_with_one_command(parts: Parts, name: str) -> None:
    parts.run(name)


def test_the_report_needs_all_parts_and_no_more_of_them(complete: Project) -> None:
    """What is asked of the parts is up to date when the report is there."""
    for problem in Parts.NAMES[1:]:
        for target in targets_of(problem):
            assert (complete.path / SMOKE / target).stat().st_size > 0
    assert complete.planned() == {}
