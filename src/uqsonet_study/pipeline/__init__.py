"""What the workflow needs to know of the package. Imports nothing heavy: every start reads it."""

from uqsonet_study.pipeline.plan import Plan
from uqsonet_study.pipeline.sources import model_module, source_digest
from uqsonet_study.pipeline.specs import UNTRAINED, Text

__all__ = ["UNTRAINED", "Plan", "Text", "model_module", "source_digest"]
