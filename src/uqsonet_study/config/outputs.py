"""Tables and figures: which experiments they show, and in which layout."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from uqsonet.operator.config import Name, Section
from uqsonet_study.config.experiments import NoiseStd
from uqsonet_study.config.section import require_distinct

Experiments = Annotated[list[Name], Field(min_length=1)]
Counts = Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)]

ScoreMetric = Literal[
    "err_mean",
    "err_std",
    "w1",
    "crps",
    "gain_crps",
    "crps_expected",
    "gain_crps_expected",
    "energy",
    "gain_energy",
    "energy_expected",
    "gain_energy_expected",
    "coverage_50",
    "coverage_90",
    "coverage_95",
    "within_50",
    "within_90",
    "within_95",
]
BANDS: tuple[ScoreMetric, ...] = ("within_50", "within_90", "within_95")
GAINS_EXPECTED: tuple[ScoreMetric, ...] = ("gain_crps_expected", "gain_energy_expected")
BY_REFERENCE: frozenset[ScoreMetric] = frozenset(
    {*BANDS, *GAINS_EXPECTED, "crps_expected", "energy_expected"}
)
"""Scores of evaluation `paper`, whose references hold samples."""


class Output(Section):
    """A table or a figure, and what it asks of its experiments."""

    by_reference: ClassVar[bool] = True  # posteriors are compared with reference posteriors
    one_case: ClassVar[bool] = False  # an experiment is shown by its one case
    across: ClassVar[bool] = False  # several problems stand beside each other
    among: ClassVar[dict[str, str]] = {}
    """Key of every experiment -> own key, whose values are among those of the former."""
    swept: ClassVar[dict[str, str]] = {}
    """Own key that names experiments -> what these have to vary."""


class ErrorTable(Output):
    """Errors beside the paper's: tab:1d-pde-error and its like."""

    layout: Literal["errors"]
    experiments: Experiments
    rows: Literal["sensors", "noise_std"] = Field(
        default="sensors", description="What the rows are; the other one becomes columns."
    )


class BandTable(Output):
    """Width of the predicted bands against the reference's (the deep-ensemble appendix)."""

    layout: Literal["bands"]
    experiments: Experiments


class NetworkTable(Output):
    """Network sizes and training settings actually used: tab:NN."""

    by_reference: ClassVar[bool] = False
    across: ClassVar[bool] = True

    layout: Literal["networks"]
    experiments: Experiments


class CostTable(Output):
    """Hours of training and seconds of inference, measured in this run: tab:training-cost."""

    by_reference: ClassVar[bool] = False
    across: ClassVar[bool] = True

    layout: Literal["costs"]
    experiments: Experiments


class AblationTable(Output):
    """Skill on validation sets, one row an experiment of one case and one method."""

    later = ("counts",)

    one_case: ClassVar[bool] = True
    across: ClassVar[bool] = True

    layout: Literal["ablation"]
    experiments: Experiments
    counts: list[Annotated[int, Field(ge=1)]] = Field(
        default=[], description="Skill at these numbers of sensors; []: average and worst."
    )


class ScoreTable(Output):
    """Scores of whole laws beside all baselines, most precise evaluation, a panel a problem."""

    by_reference: ClassVar[bool] = False
    one_case: ClassVar[bool] = True
    across: ClassVar[bool] = True

    layout: Literal["scores"]
    experiments: Experiments
    metrics: Annotated[list[ScoreMetric], Field(min_length=1)] = Field(
        default=["crps", "gain_crps", "energy", "gain_energy", *GAINS_EXPECTED, *BANDS],
        description="Columns of every method that has them; `within_*` and `*_expected` of "
        "evaluation `paper`, whose references hold samples, all others of the most precise one.",
    )


class LawTable(Output):
    """Laws of the input beside all baselines and the floor, a panel a problem.

    What it shows stands in `scores.csv` of the results, with medians over the observation sets.
    """

    one_case: ClassVar[bool] = True
    across: ClassVar[bool] = True

    layout: Literal["laws"]
    experiments: Experiments


TableConfig = Annotated[
    ErrorTable | BandTable | NetworkTable | CostTable | AblationTable | ScoreTable | LawTable,
    Field(discriminator="layout"),
]


class PosteriorFigure(Output):
    """Reference and prediction of one test function: fig:1d-pde-plot and its like."""

    by_reference: ClassVar[bool] = False
    among: ClassVar[dict[str, str]] = {
        "methods": "method",
        "sensors.counts": "counts",
        "noise_std": "noise_std",
    }

    layout: Literal["posterior"]
    experiment: Name
    method: Name = Field(default="uqsonet", description="Its first trial is shown.")
    counts: Counts = Field(description="Sensor counts; with two variables exactly one.")
    noise_std: Annotated[list[NoiseStd], Field(min_length=1)] = Field(
        default=[0.0], description="Noise levels, columns of the figure where there are several."
    )

    @property
    def experiments(self) -> list[str]:
        """What it shows."""
        return [self.experiment]


class CompareFigure(Output):
    """Sweeps: fig:1d-pde-compare (a), (b), (c), any of which may be absent."""

    swept: ClassVar[dict[str, str]] = {"distance": "latent_dim", "errors": "training"}

    layout: Literal["compare"]
    distance: Name | None = Field(
        default=None, description="(a) W2 against d_z: an experiment with sweep.latent_dim."
    )
    errors: Name | None = Field(
        default=None, description="(b) errors against N: an experiment with sweep.training."
    )
    spread: Name | None = Field(
        default=None, description="(c) mean std against m: an experiment with several counts."
    )

    @model_validator(mode="after")
    def _something(self) -> CompareFigure:
        require_distinct(self.experiments, "experiment")
        if not self.experiments:
            raise ValueError("name an experiment for at least one of distance, errors, spread")
        return self

    @property
    def experiments(self) -> list[str]:
        """What it shows."""
        return [name for name in (self.distance, self.errors, self.spread) if name is not None]


class CalibrationFigure(Output):
    """Rank histograms and coverage of bands, one column an experiment of one noise level."""

    one_case: ClassVar[bool] = True
    across: ClassVar[bool] = True

    layout: Literal["calibration"]
    experiments: Experiments


class SpectraFigure(Output):
    """Sample functions and their spectra beside the reference's, one column an experiment."""

    one_case: ClassVar[bool] = True
    across: ClassVar[bool] = True

    layout: Literal["spectra"]
    experiments: Experiments


FigureConfig = Annotated[
    PosteriorFigure | CompareFigure | CalibrationFigure | SpectraFigure,
    Field(discriminator="layout"),
]
