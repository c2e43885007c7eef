"""Four episodes of two agents and two models, whose figures can be counted by hand."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from spanloop.foundation.settings import Price, Prices
from spanloop.store import Store

from .dashboard_seeding import insert

START: Final = datetime(2026, 3, 1, 10, tzinfo=UTC)
PRICES: Final = Prices(
    currency="EUR",
    models=(
        Price(model="gpt-*", input=1.0, cached=0.5, output=2.0),
        Price(model="gpt-*", since=(START + timedelta(days=1)).date(), input=2.0, output=4.0),
    ),
)
"""From the second day on twice as dear, and without a price of cached tokens."""


def seed_numbers(store: Store, *, has_results: bool = True) -> None:
    """Store the episodes a to d; without results in the form of converters that wrote no durations of tools."""
    steps = [
        _step("a", 0, "gpt-1", took_s=1, first_ms=200, tokens=(1_000_000, 400_000, 100_000), tool=("search", 50)),
        _step("a", 1, "gpt-1", took_s=3, tokens=(1_000_000, 0, 0), tool=("search", 150)),
        _step("b", 0, "gpt-1", took_s=2, tokens=(0, 0, 0)),
        _step("b", 1, "house", took_s=5, tokens=(7_000, 0, 1_000)),
        _step("c", 0, "gpt-1", took_s=1, first_ms=400, tokens=(1_000_000, 500_000, 0), day=1),
        _step("d", 0, "house", took_s=4, tokens=(500, 0, 0), tool=("search", 0), day=1),
    ]
    if has_results:
        # a tool that no message names
        steps[3] |= {"result_tools": ["lookup"], "result_durations_ns": [70 * 10**6]}
    left_out = set[str]() if has_results else {"result_tools", "result_durations_ns"}
    insert(store, "transition_rows", [{name: step[name] for name in step.keys() - left_out} for step in steps])
    insert(
        store,
        "failures",
        [
            _failure("b", "wrong", "policy", "wrong_answer"),
            _failure("b", "slow", "tool", "timeout", is_recovered=True),
            _failure("d", "wrong", "policy", "wrong_answer", day=1),
            _failure("d", "slow", "tool", "timeout", day=1),
        ],
    )
    insert(
        store,
        "episodes",
        [
            _episode("a", "planner", "gpt-1", took_s=6, outcome="success"),
            _episode("b", "writer", "gpt-1", took_s=10, outcome="failure", owner="policy", error="wrong_answer"),
            _episode("c", "planner", "gpt-1", took_s=2, outcome="success", day=1),
            _episode("d", "writer", "house", took_s=30, outcome="failure", owner="tool", error="timeout", day=1),
        ],
    )


def _step(
    episode: str,
    step: int,
    model: str,
    *,
    took_s: int,
    tokens: tuple[int, int, int],
    first_ms: int | None = None,
    tool: tuple[str, int] | None = None,
    day: int = 0,
) -> dict[str, Any]:
    call = f'{{"type":"tool_call","name":"{tool[0]}","arguments":{{}}}}' if tool else ""
    return {
        "transition_id": f"{episode}/{step}",
        "episode_id": episode,
        "revision": 1,
        "step": step,
        "model": model,
        "action": f'{{"role":"assistant","parts":[{call}]}}',
        "input_tokens": tokens[0],
        "cached_tokens": tokens[1],
        "output_tokens": tokens[2],
        "started_at": START + timedelta(days=day, seconds=step),
        "duration_ns": took_s * 10**9,
        "first_token_ns": None if first_ms is None else first_ms * 10**6,
        "result_tools": [tool[0]] if tool else [],
        "result_durations_ns": [tool[1] * 10**6] if tool else [],
    }


def _failure(
    episode: str, fingerprint: str, owner: str, error: str, *, is_recovered: bool = False, day: int = 0
) -> dict[str, Any]:
    return {
        "failure_id": f"{episode}/{fingerprint}",
        "episode_id": episode,
        "revision": 1,
        "fingerprint": fingerprint,
        "fault_owner": owner,
        "error_class": error,
        "is_recovered": is_recovered,
        "tool_name": "fetch" if owner == "tool" else "",
        "message": f"it was {fingerprint}",
        "occurred_at": START + timedelta(days=day, seconds=1),
    }


def _episode(
    episode: str, agent: str, model: str, *, took_s: int, outcome: str, owner: str = "", error: str = "", day: int = 0
) -> dict[str, Any]:
    return {
        "episode_id": episode,
        "revision": 1,
        "agent_name": agent,
        "service_name": "app",
        "model": model,
        "policy_version": f"{agent}@v{day + 1}",
        "started_at": START + timedelta(days=day),
        "duration_ns": took_s * 10**9,
        "outcome": outcome,
        "fault_owner": owner,
        "error_class": error,
        "trace_ids": [episode],
    }
