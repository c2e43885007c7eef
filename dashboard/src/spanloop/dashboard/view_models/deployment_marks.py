"""Deployments, promotions and rollbacks as marks on a time axis."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import polars as pl

from spanloop.training.models.registry import Deployment
from spanloop.training.promotion.evidence import Decision
from spanloop.training.promotion.outcome import PromotionOutcome

SCHEMA: Final = pl.Schema(
    {"at": pl.Datetime("us", "UTC"), "version": pl.String(), "event": pl.String(), "label": pl.String()}
)
_SYMBOLS: Final = {"promoted": "▲", "rolled back": "▼", "deployed": "●"}
_SAME: Final = timedelta(minutes=2)
"""A deployment so soon after a decision about its version is that decision carried out."""


def deployment_marks(
    deployments: Sequence[Deployment], decisions: Sequence[Decision], *, start: datetime, end: datetime
) -> pl.DataFrame:
    """Return a row of ``SCHEMA`` for each change of what is served between two moments, oldest first."""
    events = {PromotionOutcome.PROMOTED: "promoted", PromotionOutcome.ROLLED_BACK: "rolled back"}
    rows = [(each.decided_at, each.candidate, events[each.outcome]) for each in decisions if each.outcome in events]
    for each in deployments:
        if not any(version == each.reference and abs(each.deployed_at - at) <= _SAME for at, version, _ in rows):
            rows.append((each.deployed_at, each.reference, "deployed"))
    shown = sorted((at, version, event) for at, version, event in rows if start <= at <= end)
    labelled = [(at, version, event, f"{_SYMBOLS[event]} {version}") for at, version, event in shown]
    return pl.DataFrame(labelled, schema=SCHEMA, orient="row")
