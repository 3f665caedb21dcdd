"""What the workflow needs to know of the package. Imports nothing heavy: every start reads it."""

from uqsonet_study.pipeline.edits import SOURCES, law_modules, model_module, problem_modules
from uqsonet_study.pipeline.paths import Paths
from uqsonet_study.pipeline.plan import UNTRAINED, Plan, Told, flat
