"""Synthetic episodes whose log-probabilities are a real model's own, inserted the way the pipeline does."""

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl
import torch
from transformers import AutoModelForCausalLM

from spanloop.store import Store

from ..stored_states import insert_transitions

STARTED_AT = datetime(2026, 11, 1, tzinfo=UTC)
REVISION = 7


@cache
def _model(path: Path) -> Any:
    loader: Any = AutoModelForCausalLM
    return loader.from_pretrained(path, dtype=torch.float32)


def token_logprobs(
    model_path: Path, prompt: list[int], response: list[int], *, temperature: float = 1.0
) -> list[float]:
    """Natural log-probability of each response token: one plain forward pass of one unpadded sequence."""
    with torch.no_grad():
        logits = _model(model_path)(torch.tensor([prompt + response])).logits[0]
    scores = (logits / temperature).log_softmax(-1)
    return [float(scores[len(prompt) + index - 1, token]) for index, token in enumerate(response)]


def trajectory(
    model_path: Path,
    rng: random.Random,
    *,
    episode: str,
    group: str,
    row_number: int,
    prompt: list[int],
    temperature: float = 1.0,
) -> dict[str, object]:
    """One row of ``trajectories``: sampled tokens around a stretch of tool output that the loss leaves out."""
    response = [rng.randrange(3, 300) for _ in range(rng.randrange(12, 24))]
    mask = [0 if 4 <= index < 7 else 1 for index in range(len(response))]
    logprobs = token_logprobs(model_path, prompt, response, temperature=temperature)
    return {
        "trajectory_id": f"{episode}/{row_number}",
        "episode_id": episode,
        "revision": REVISION,
        "row_number": row_number,
        "task_id": group,
        "group_id": group,
        "agent_name": "",
        "policy_version": "tiny@v1",
        "first_step": row_number,
        "last_step": row_number,
        "row_start": "first",
        "prompt_token_ids": prompt,
        "response_token_ids": response,
        "loss_mask": mask,
        "logprobs": [value if kept else 0.0 for value, kept in zip(logprobs, mask, strict=True)],
        "sampled_steps": [row_number],
        "sampled_starts": [0],
        "sampled_ends": [len(response)],
        "reward": None,
        "is_trainable": True,
        "untrainable_reason": "",
    }


def episode_row(episode: str, group: str, number: int, reward: float | None) -> dict[str, object]:
    """One row of ``episodes``."""
    return {
        "episode_id": episode,
        "revision": REVISION,
        "is_deleted": 0,
        "converter_version": "test",
        "episode_key": "",
        "task_id": group,
        "group_id": group,
        "session_id": "",
        "service_name": "test",
        "agent_name": "",
        "model": "tiny",
        "policy_version": "tiny@v1",
        "trace_ids": [episode],
        "started_at": STARTED_AT + timedelta(seconds=number),
        "duration_ns": 1,
        "step_count": 1,
        "span_count": 1,
        "tool_call_count": 0,
        "tool_error_count": 0,
        "input_tokens": 1,
        "output_tokens": 1,
        "outcome": "unknown" if reward is None else "success" if reward else "failure",
        "reward": reward,
        "reward_breakdown": [],
        "is_terminated": True,
        "is_truncated": False,
        "error_class": "",
        "fault_owner": "",
    }


def insert(store: Store, table: str, rows: list[dict[str, object]]) -> None:
    """Insert dictionaries with the table's own column types; what they leave out has the column's default."""
    frame = pl.DataFrame(rows, schema=store.schema(table))
    if table == "transitions":
        insert_transitions(store, frame)
    else:
        store.insert(table, frame)


def transition_row(episode: str, group: str, step: int, sampling: Mapping[str, str]) -> dict[str, object]:
    """One row of ``transitions``, as far as training reads it."""
    return {
        "transition_id": f"{episode}/{step}",
        "episode_id": episode,
        "revision": REVISION,
        "step": step,
        "task_id": group,
        "group_id": group,
        "policy_version": "tiny@v1",
        "sampling": [{"key": name, "value": text} for name, text in sampling.items()],
    }


def failure_row(
    episode: str, step: int, owner: str, *, error_class: str = "invalid_arguments", is_recovered: bool = False
) -> dict[str, object]:
    """One row of ``failures``, as far as training reads it."""
    return {
        "failure_id": f"{episode}/{step}/{owner}",
        "episode_id": episode,
        "revision": REVISION,
        "step": step,
        "error_class": error_class,
        "fault_owner": owner,
        "is_recovered": is_recovered,
    }


def seed_groups(
    store: Store,
    model_path: Path,
    *,
    groups: int = 4,
    episodes: int = 4,
    seed: int = 0,
    prefix: str = "task",
    sampling: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Trainable groups of varied reward, every second episode of two rows; one group that never varies."""
    rng = random.Random(seed)
    temperature = float(sampling.get("temperature", "1"))
    rows: list[dict[str, object]] = []
    steps: list[dict[str, object]] = []
    heads: list[dict[str, object]] = []
    for group_number in range(groups + 1):
        group = f"{prefix}-{group_number}"
        prompt = [rng.randrange(3, 300) for _ in range(rng.randrange(20, 40))]
        for number in range(episodes):
            episode = f"{group}-episode-{number}"
            reward = 1.0 if group_number == groups else float(number % 2)
            heads.append(episode_row(episode, group, number, reward))
            for row in range(1 + number % 2):
                steps.append(transition_row(episode, group, row, sampling))
                rows.append(
                    trajectory(
                        model_path,
                        rng,
                        episode=episode,
                        group=group,
                        row_number=row,
                        prompt=prompt + [9] * row,
                        temperature=temperature or 1.0,
                    )
                )
    insert(store, "episodes", heads)
    insert(store, "trajectories", rows)
    insert(store, "transitions", steps)


def seed_old_score(store: Store, model_path: Path, reward: float) -> None:
    """A further episode ``task-0-old`` of the first group, whose score an earlier version let through."""
    rng = random.Random(1)
    prompt = [rng.randrange(3, 300) for _ in range(20)]
    row = trajectory(model_path, rng, episode="task-0-old", group="task-0", row_number=0, prompt=prompt)
    insert(store, "episodes", [episode_row("task-0-old", "task-0", 9, reward)])
    insert(store, "trajectories", [row])
    insert(store, "transitions", [transition_row("task-0-old", "task-0", 0, {})])
