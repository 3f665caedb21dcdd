"""What the workflow needs to know of the package. Imports nothing heavy: every start reads it."""

from uqsonet.pipeline.plan import Plan
from uqsonet.pipeline.sources import method_modules, source_digest
from uqsonet.pipeline.specs import TOGETHER

__all__ = ["TOGETHER", "Plan", "method_modules", "source_digest"]
