"""The whole DAG at smoke scale, in parts that run beside one another and before other tests."""

import pytest

from tests.workflow.conftest import SMOKE, Parts, Project, targets_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(0)]  # Snakemake is watched


@pytest.mark.parametrize("name", Parts.NAMES)
def test_a_part_runs_with_one_command(parts: Parts, name: str) -> None:
    parts.run(name)


def test_the_report_comes_after_all_parts(complete: Project) -> None:
    """All that is asked of the parts is there when the report is."""
    for problem in Parts.NAMES[1:]:
        for target in targets_of(problem):
            assert (complete.path / SMOKE / target).stat().st_size > 0, target
