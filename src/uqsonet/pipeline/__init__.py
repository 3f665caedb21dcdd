"""What the workflow needs to know of the package. Imports nothing heavy: every start reads it."""

from uqsonet.pipeline.plan import TOGETHER, Plan
from uqsonet.pipeline.sources import method_modules, source_digest

__all__ = ["TOGETHER", "Plan", "method_modules", "source_digest"]
