"""Settings of the process that converts new spans."""

from pydantic import Field

from .base import StatusSettings


class PipelineSettings(StatusSettings):
    """``[serve.pipeline]``: convert new rows every few seconds."""

    role = "pipeline"
    module = "spanloop.pipeline"

    interval_s: float = Field(default=5.0, gt=0)
    """Seconds between two conversions."""
    batch_spans: int = Field(default=50_000, gt=0)
    """Spans that are converted at once. More new spans are several batches, which all pipelines of a store share."""
