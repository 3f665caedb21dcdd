"""How work is cut into jobs and where they run, which changes no result."""

from __future__ import annotations

from pydantic import Field

from uqsonet.operator.config import Section


class JobsConfig(Section):
    """How work is cut into jobs."""

    together: bool = Field(
        default=False,
        description="One job each makes all scores, all summaries, all tables and all figures: for "
        "runs whose jobs would spend their time starting up.",
    )
    checkpoint_minutes: float = Field(default=2.0, gt=0, description="Time between checkpoints.")
    device: str = Field(default="cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="Torch device.")
