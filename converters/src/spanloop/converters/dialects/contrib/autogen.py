"""AutoGen's messages between agents: each is a trace of its own, and its destination ends with the team's id.

A team's traces are one conversation; model calls and tools stand below these spans and are read as what they are.
"""

from typing import Final

import polars as pl

from ...spans import SpanKind
from ..base import Dialect, attr

_DESTINATION: Final = "messaging.destination"
_TEAM: Final = r"\(([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\)-[AT]$"

AUTOGEN: Final = Dialect(
    name="autogen",
    matches=attr(_DESTINATION).is_not_null() & pl.col("SpanName").str.starts_with("autogen "),
    columns={
        "kind": pl.lit(SpanKind.OTHER.value),
        "conversation_id": pl.col("SpanName").str.extract(_TEAM),
    },
)
