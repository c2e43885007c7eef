"""Rows as the query ``training_trajectories`` gives them, and rules, for tests of the selection."""

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from spanloop.training.dataset.pairs import Pairing
from spanloop.training.dataset.selection import Rules, Selection, select_rows

from .recipe_kinds import take_settings

COLUMNS: dict[str, pl.DataType] = {
    "episode_id": pl.String(),
    "revision": pl.UInt64(),
    "task_id": pl.String(),
    "group_id": pl.String(),
    "started_at": pl.Datetime("ns", "UTC"),
    "reward": pl.Float64(),
    "outcome": pl.String(),
    "source": pl.String(),
    "trajectory_id": pl.String(),
    "row_number": pl.UInt32(),
    "policy_version": pl.String(),
    "prompt_token_ids": pl.List(pl.UInt32()),
    "response_token_ids": pl.List(pl.UInt32()),
    "loss_mask": pl.List(pl.UInt8),
    "logprobs": pl.List(pl.Float32),
    "is_trainable": pl.Boolean(),
    "untrainable_reason": pl.String(),
    "sampling": pl.List(pl.String),
    "untrainable_calls": pl.List(pl.String),
    "policy_versions": pl.List(pl.String),
    "decided_by": pl.String(),
    "first_step": pl.UInt32(),
    "last_step": pl.UInt32(),
    "sampled_steps": pl.List(pl.UInt32),
    "sampled_starts": pl.List(pl.UInt32),
    "sampled_ends": pl.List(pl.UInt32),
    "fault_steps": pl.List(pl.UInt32),
    "fault_classes": pl.List(pl.String),
    "fault_owners": pl.List(pl.String),
    "fault_is_recovered": pl.List(pl.UInt8),
    "marks": pl.List(pl.String),
    "is_scored": pl.Boolean(),
    "tokenizers": pl.List(pl.String),
    "step_rewards": pl.List(pl.Float64),
    "age_versions": pl.UInt32(),
    "age_days": pl.Float64(),
}
SCHEMA = pl.Schema(COLUMNS)


def row(
    episode: str = "e", group: str = "g", reward: float | None = 1.0, number: int = 0, **changes: Any
) -> dict[str, Any]:
    return {
        "episode_id": episode,
        "revision": 1,
        "task_id": group,
        "group_id": group,
        "started_at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=sum(map(ord, episode))),
        "reward": reward,
        "outcome": "unknown" if reward is None else "success" if reward >= 0.5 else "failure",
        "source": "captured",
        "trajectory_id": f"{episode}/{number}",
        "row_number": number,
        "policy_version": "m@v1",
        "prompt_token_ids": [1, 2, 3],
        "response_token_ids": [4, 5],
        "loss_mask": [1, 1],
        "logprobs": [-0.5, -0.5],
        "is_trainable": True,
        "untrainable_reason": "",
        "sampling": ["{}"],
        "untrainable_calls": [],
        "policy_versions": ["m@v1"],
        "decided_by": "",
        "first_step": number,
        "last_step": number,
        "sampled_steps": [number],
        "sampled_starts": [0],
        "sampled_ends": [2],
        "fault_steps": [],
        "fault_classes": [],
        "fault_owners": [],
        "fault_is_recovered": [],
        "marks": [],
        "is_scored": True,
        "tokenizers": [""],
        "step_rewards": [None] * len(changes.get("sampled_steps", [number])),
        "age_versions": 0,
        "age_days": 1.0,
    } | changes


def rules(kind: str = "dr_grpo", *, pairing: Pairing | None = None, **changes: Any) -> Rules:
    """Rules of a recipe, whose settings are among ``changes``."""
    settings: dict[str, Any] = {"outcomes": "all", "pairs_per_group": 1} | changes
    if pairing is not None:
        settings |= {
            "pair_margin": pairing.margin,
            "pairs_per_group": pairing.pairs_per_group,
            "repeats_per_task": pairing.repeats_per_task,
            "seed": pairing.seed,
        }
    base = Rules(
        recipe=take_settings(kind, settings),
        max_prompt_tokens=100,
        max_response_tokens=100,
        context_tokens=150,
        vocabulary_size=50,
        tokenizer="ours",
        tokenizers={"m@v1": "ours", "m@v2": "ours", "other@v1": "theirs"},
    )
    return base._replace(**settings)


def select(rows: list[dict[str, Any]], given_rules: Rules) -> Selection:
    return select_rows(pl.DataFrame(rows, schema=SCHEMA, orient="row"), given_rules)
