"""The configuration: what may be written in `config.yaml`, with ranges and meanings.

Unknown keys are refused, so a misspelt key is an error and never a silent default. The JSON
schema in `workflow/schemas/config.schema.json` is generated from these classes. Nothing here
imports torch or NumPy because the workflow reads it at every start.
"""

from uqsonet.networks.config import AttentionNetwork, AttentionPriorNetwork, KarhunenLoeveSetNetwork
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet.operator.settings import TrainingConfig
from uqsonet_study.config.evaluations import Evaluation, EvaluationConfig, ReferenceConfig
from uqsonet_study.config.experiments import (
    BASELINES,
    Case,
    ExperimentConfig,
    OwnDataConfig,
    ProblemConfig,
)
from uqsonet_study.config.jobs import JobsConfig
from uqsonet_study.config.loading import json_schema, load_config
from uqsonet_study.config.networks import MethodConfig
from uqsonet_study.config.outputs import (
    BY_REFERENCE,
    AblationTable,
    CalibrationFigure,
    CompareFigure,
    ErrorTable,
    PosteriorFigure,
    ScoreTable,
    SpectraFigure,
)
from uqsonet_study.config.recipes import LawConfig
from uqsonet_study.config.sensors import SensorsConfig
from uqsonet_study.config.whole import Config
