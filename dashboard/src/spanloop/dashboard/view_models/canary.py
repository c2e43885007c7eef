"""What a canary's page shows of candidate and champion, row by row."""

from collections.abc import Mapping, Sequence
from typing import Any

from spanloop.dashboard.view_models.formatting import DASH, number, percent
from spanloop.foundation.settings.metric import Metric
from spanloop.training.promotion.canary.look import ArmFigures, CanaryLook

_TITLES = {
    Metric.SUCCESS: "success",
    Metric.REWARD: "reward",
    Metric.CRASHES: "with a call that failed",
    Metric.ERRORS: "with an unrecovered failure",
    Metric.LATENCY: "latency of its calls (s)",
    Metric.TOKENS: "tokens",
    Metric.STEPS: "model calls",
}


def session_rows(look: CanaryLook) -> list[dict[str, object]]:
    """Return the figures of counted sessions: means by metric, then sessions with a failure by who is at fault."""
    rows = [_row("rewarded sessions", f"{look.candidate.sessions:,}", f"{look.champion.sessions:,}")]
    for metric, title in _TITLES.items():
        values = [arm.means.get(metric) for arm in (look.candidate, look.champion)]
        if any(value is not None for value in values):
            rows.append(_row(title, *map(number, values)))
    owners = sorted(look.candidate.owners.keys() | look.champion.owners.keys())
    rows += [_row(f"failures by {owner}", _of(look.candidate, owner), _of(look.champion, owner)) for owner in owners]
    return rows


def traffic_rows(traffic: Sequence[Mapping[str, Any]]) -> list[dict[str, object]]:
    """Return the figures of all calls, rewarded or not."""
    arms = {row["arm"]: row for row in traffic}
    candidate, champion = arms.get("candidate"), arms.get("champion")
    return [
        _row(title, _shown(candidate, column, text), _shown(champion, column, text))
        for title, column, text in (
            ("sessions", "sessions", "{:,}"),
            ("calls", "calls", "{:,}"),
            ("calls that failed", "errors", "{:,}"),
            ("median latency of a call (s)", "latency_p50_s", "{:.2f}"),
            ("95th percentile (s)", "latency_p95_s", "{:.2f}"),
            ("tokens of a call", "tokens", "{:,.0f}"),
        )
    ]


def shadow_rows(row: Mapping[str, Any], answered: int) -> list[dict[str, object]]:
    """Return the figures of the calls that a shadow candidate answered too."""
    return [
        _row("valid tool calls", percent(row["valid"], answered), percent(row["champion_valid"], answered)),
        _row("median latency of a call (s)", f"{row['latency_p50_s']:.2f}", f"{row['champion_latency_p50_s']:.2f}"),
        _row("tokens of an answer", f"{row['tokens'] / answered:,.0f}", f"{row['champion_tokens'] / answered:,.0f}"),
    ]


def _shown(row: Mapping[str, Any] | None, column: str, text: str) -> str:
    return DASH if row is None else text.format(row[column])


def _of(arm: ArmFigures, owner: str) -> str:
    return f"{arm.owners.get(owner, 0):,}"


def _row(title: str, candidate: str, champion: str) -> dict[str, object]:
    return {"figure": title, "candidate": candidate, "champion": champion}
