"""Look at a canary: count the sessions that have been rewarded since the last look, and judge all that were counted.

Invariant: a session is counted once, in the order in which looks found it, and keeps its values: feedback that comes
later does not change an e-value that was seen. The caller lets one look follow another.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import polars as pl

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.settings import Promotion
from spanloop.foundation.settings.metric import Metric
from spanloop.foundation.tables.canaries import CANARY_SESSIONS
from spanloop.store import Store

from ..evidence import Judgement
from ..judge import judge_canary
from .session_blocks import Session

CANARY_METRICS: Final = frozenset(
    {Metric.SUCCESS, Metric.REWARD, Metric.CRASHES, Metric.ERRORS, Metric.LATENCY, Metric.TOKENS, Metric.STEPS}
)
"""What is known of a session without reference calls."""


class ArmFigures(NamedTuple):
    """Means over the counted sessions of one version."""

    sessions: int
    means: Mapping[Metric, float]
    owners: Mapping[str, int]
    """Sessions with an unrecovered failure, by who is at fault for it."""


class CanaryLook(NamedTuple):
    """What a look found."""

    judgement: Judgement
    candidate: ArmFigures
    champion: ArmFigures


def check_rule(rule: Promotion) -> None:
    """Refuse a rule that no canary can fulfil.

    Raises:
        ConfigurationError: A metric or a guard needs reference calls, which sessions do not have.
    """
    unknown = sorted({rule.metric, *rule.guards} - CANARY_METRICS)
    if unknown:
        raise ConfigurationError(
            f"A canary cannot measure {', '.join(unknown)}: sessions have no reference calls.",
            next_step=f"Use {', '.join(sorted(CANARY_METRICS))} in [promotion] of spanloop.toml.",
        )


def look(store: Store, canary_id: str, rule: Promotion) -> CanaryLook:
    """Count new sessions and judge the canary.

    Args:
        store: The store.
        canary_id: Of a canary that runs or has ended.
        rule: What must be shown.

    Raises:
        ConfigurationError: A reward is outside of the rule's range.
        StoreError: ClickHouse is unreachable.
    """
    counted = store.query("canary_counted_sessions", canary_id=canary_id)
    before = datetime.now(UTC) - timedelta(seconds=rule.feedback_s)
    found = store.query("canary_new_sessions", canary_id=canary_id, settled_before=before)
    new = [row for row in found.iter_rows(named=True) if rule.metric.value in _figures(row, rule)]
    if new:
        store.insert("canary_sessions", _rows(canary_id, new, rule, first=counted.height))
    return judge_counted(store, canary_id, rule)


def judge_counted(store: Store, canary_id: str, rule: Promotion) -> CanaryLook:
    """Judge the sessions that looks have counted; it counts none, and raises as `look`."""
    sessions = store.query("canary_counted_sessions", canary_id=canary_id).to_dicts()
    return CanaryLook(
        judge_canary(rule, {metric: _of_metric(sessions, metric) for metric in (rule.metric, *rule.guards)}),
        _arm([row for row in sessions if row["arm"] == "candidate"]),
        _arm([row for row in sessions if row["arm"] != "candidate"]),
    )


def _figures(row: Mapping[str, Any], rule: Promotion) -> dict[str, float]:
    """Return what is known of a session; a call that its version failed makes it a failure."""
    is_failed = bool(row["is_failed"])
    figures = {
        Metric.SUCCESS: 0.0 if is_failed else row["success"],
        Metric.REWARD: rule.reward_range[0] if is_failed else row["reward"],
        Metric.CRASHES: float(is_failed),
        Metric.ERRORS: float(is_failed or bool(row["owners"])),
        Metric.LATENCY: row["latency_s"],
        Metric.TOKENS: row["tokens"],
        Metric.STEPS: row["steps"],
    }
    return {metric.value: float(value) for metric, value in figures.items() if value is not None}


def _rows(canary_id: str, new: Sequence[Mapping[str, Any]], rule: Promotion, *, first: int) -> pl.DataFrame:
    columns: dict[str, list[object]] = {
        "canary_id": [canary_id] * len(new),
        "position": list(range(first, first + len(new))),
        "session": [row["session"] for row in new],
        "arm": [row["arm"] for row in new],
        "figures": [_figures(row, rule) for row in new],
        "owners": [row["owners"] or [] for row in new],
        "started_at": [row["started_at"] for row in new],
    }
    return CANARY_SESSIONS.frame(columns)


def _of_metric(sessions: Sequence[Mapping[str, Any]], metric: Metric) -> list[Session]:
    with_metric = ((row, dict(row["figures"]).get(metric.value)) for row in sessions)
    return [Session(row["arm"] == "candidate", value) for row, value in with_metric if value is not None]


def _arm(sessions: Sequence[Mapping[str, Any]]) -> ArmFigures:
    values: dict[Metric, list[float]] = {}
    owners: dict[str, int] = {}
    for row in sessions:
        for name, value in dict(row["figures"]).items():
            values.setdefault(Metric(name), []).append(value)
        for owner in row["owners"]:
            owners[owner] = owners.get(owner, 0) + 1
    return ArmFigures(len(sessions), {metric: sum(each) / len(each) for metric, each in values.items()}, owners)
