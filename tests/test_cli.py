"""The command line of the study, and what stands beside it."""

import json

from typer.testing import CliRunner

from uqsonet_study.cli import app
from uqsonet_study.config import Config
from uqsonet_study.problems import get_problem
from uqsonet_study.references import for_sampling


def test_schema_prints_every_key_of_the_configuration() -> None:
    result = CliRunner().invoke(app, ["schema"])
    assert result.exit_code == 0
    assert set(json.loads(result.stdout)["properties"]) == set(Config.model_fields)


def test_references_are_solved_no_finer_than_they_need() -> None:
    flow = get_problem("navier_stokes")
    assert for_sampling(flow).tolerance > flow.tolerance > 0
