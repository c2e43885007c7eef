"""Deterministic rows of a trained model: demo@v1 → (sft) → demo@v2 → (grpo) → demo@v3, on train and test tasks."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import polars as pl
from pydantic import JsonValue

from spanloop.dashboard.queries import lists
from spanloop.dashboard.view_models.filters import Filters
from spanloop.evaluation.results import NOTHING_TRAINED, evaluate
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.training.dataset.manifest import DATA_NAME, MANIFEST_NAME, Count, Manifest, PinnedEpisode
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import JobApi, JobSpec

from .dashboard_seeding import insert, model_folder

LEARNED: Final = ("demo@v1", "demo@v2", "demo@v3")
TEST_TASKS: Final = 40
_TRAIN_TASKS: Final = 10
_ATTEMPTS: Final = 2
_CLASSES: Final = (
    ("invalid_arguments", "policy", "lookup", "KeyError: 'name' is a required argument"),
    ("wrong_answer", "policy", "", "the answer is 41, expected 42"),
    ("no_tool_call", "policy", "", "the answer was given without the calculator"),
)
_FAILS_BELOW: Final = ((30, 55, 70), (15, 33, 40), (3, 14, 18))
"""For each version, upper limits (task number modulo 100) of the tasks that fail with each class."""


@dataclass(frozen=True)
class Learned:
    """Ids of the stored rows."""

    improved_task: str
    """A test task that demo@v1 failed and demo@v3 solves."""
    failed_id: str
    solved_id: str
    trained_id: str
    """An episode that the sft job trained on."""


def seed_learning(store: Store, *, end: datetime | None = None) -> Learned:
    """Fill the tables with the episodes of three versions, and evaluate each on the test tasks."""
    attempts = list(_attempts(end or datetime.now(UTC)))
    for table in ("episodes", "transitions", "trajectories", "failures", "scores"):
        insert(store, table, [row for attempt in attempts for row in attempt.rows(table)])
    for version in LEARNED:
        evaluate(store, name="test", model=version, trained=NOTHING_TRAINED, task_prefix="test-")
    by_task = {(attempt.version, attempt.task_id): attempt for attempt in attempts if attempt.is_test}
    improved_task = next(
        task for task in sorted(task for _, task in by_task) if by_task[0, task].cause and not by_task[2, task].cause
    )
    return Learned(
        improved_task=improved_task,
        failed_id=by_task[0, improved_task].episode_id,
        solved_id=by_task[2, improved_task].episode_id,
        trained_id=next(attempt.episode_id for attempt in attempts if not attempt.is_test),
    )


_METADATA: Final[Mapping[str, dict[str, JsonValue]]] = {
    "sft": {"steps": 20, "ended_early": ""},
    "grpo": {"steps": 18, "ended_early": "kl_budget ended it at step 18"},
}


def seed_learning_control(data_dir: DataDir, store: Store, scratch: Path) -> tuple[str, str]:
    """Register the three versions and the sft and grpo jobs that made two of them; return the jobs' ids."""
    api, registry = JobApi(data_dir), Registry(data_dir)
    registry.add("demo", model_folder(scratch / "demo-v1", "demo 1"))
    kinds = ("sft", "grpo")
    job_ids: list[str] = []
    for number, kind in enumerate(kinds, start=1):
        spec = JobSpec.of(kind=kind, base=LEARNED[number - 1], steps=20, task_prefix="train-", pause_serving=True)
        job = api.submit(spec)
        registry.add(
            "demo",
            model_folder(scratch / f"demo-v{number + 1}", f"demo {number + 1}"),
            parent=spec.base,
            job_id=job.id,
            metadata=_METADATA[kind],
        )
        _write_manifest(data_dir, store, job.id, spec)
        _metrics(store, job.id, kind)
        _samples(store, job.id, spec)
        job_ids.append(job.id)
    return job_ids[0], job_ids[1]


def _samples(store: Store, job_id: str, spec: JobSpec) -> None:
    """Step 1 trained on the first step of two train episodes of the base."""
    rows = [
        {
            "job_id": job_id, "attempt": 1, "step": 1, "sample": sample, "kind": str(spec.kind),
            "episode_id": episode_id, "revision": revision, "row_number": 0, "trained_steps": [0],
            "tokens": 3, "loss": 0.5,
        }
        for sample, (episode_id, revision) in enumerate(_train_episodes(store, spec).head(2).iter_rows())
    ]  # fmt: skip
    insert(store, "training_samples", rows)


def _train_episodes(store: Store, spec: JobSpec) -> pl.DataFrame:
    """Return ids and revisions of the base's train episodes."""
    filters = Filters(values={"policy": (spec.base,), "task": ("train-*",)})
    return lists.fetch_episodes(store, filters, "", None).rows.select("episode_id", "revision")


def _write_manifest(data_dir: DataDir, store: Store, job_id: str, spec: JobSpec) -> None:
    episodes = _train_episodes(store, spec)
    folder = data_dir.jobs / job_id
    folder.mkdir(parents=True)
    data = b"rows of the dataset"
    (folder / DATA_NAME).write_bytes(data)
    is_grpo = spec.kind == "grpo"
    manifest = Manifest(
        job_id=job_id,
        kind=spec.kind,
        created_at=datetime.now(UTC),
        base=spec.base,
        query="training_trajectories",
        query_parameters={"task_prefix": spec.episodes.task_prefix},
        rows=Count(accepted=episodes.height, rejected={"too_long": 3}),
        episodes=Count(accepted=episodes.height, rejected={}),
        groups=Count(accepted=_TRAIN_TASKS if is_grpo else 0, rejected={"rewards_alike": 4} if is_grpo else {}),
        prompt_groups=_TRAIN_TASKS if is_grpo else 0,
        temperature=1.0 if is_grpo else None,
        longest_prompt_tokens=48,
        longest_response_tokens=42,
        longest_row_tokens=90,
        mean_reward=0.5,
        data_sha256=sha256(data).hexdigest(),
        pinned=tuple(
            PinnedEpisode(episode_id=episode_id, revision=revision) for episode_id, revision in episodes.iter_rows()
        ),
    )
    (folder / MANIFEST_NAME).write_text(manifest.model_dump_json())


def _metrics(store: Store, job_id: str, kind: str) -> None:
    name = "batch_reward" if kind == "grpo" else "train/loss"
    sign = 1 if kind == "grpo" else -1
    rows = [
        {"job_id": job_id, "step": step, "name": name, "value": 0.5 + sign * 0.4 * (1 - 0.9**step)}
        for step in range(1, 21)
    ]
    insert(store, "training_metrics", rows)


def _attempts(end: datetime) -> Iterator["_EpisodePlan"]:
    number = 0
    for version in range(len(LEARNED)):
        plans = [(f"test-sum-{index:03d}", 0) for index in range(TEST_TASKS)]
        plans += [(f"train-sum-{index:03d}", attempt) for index in range(_TRAIN_TASKS) for attempt in range(_ATTEMPTS)]
        for task_id, attempt in plans:
            number += 1
            yield _EpisodePlan(
                version, task_id, attempt, number, end - timedelta(hours=2) + timedelta(seconds=20 * number)
            )


@dataclass(frozen=True)
class _EpisodePlan:
    version: int
    task_id: str
    attempt: int
    number: int
    started_at: datetime

    @property
    def is_test(self) -> bool:
        return self.task_id.startswith("test-")

    @property
    def cause(self) -> tuple[str, str, str, str] | None:
        place = (int(self.task_id[-3:]) * 37 + 11 * self.attempt) % 100
        below = _FAILS_BELOW[self.version]
        return next((_CLASSES[index] for index, limit in enumerate(below) if place < limit), None)

    @property
    def episode_id(self) -> str:
        return f"{self.number:032x}"

    @property
    def is_recovered(self) -> bool:
        """Whether a tool call failed and the episode still succeeded."""
        return self.cause is None and self.number % 9 == 0

    def rows(self, table: str) -> list[dict[str, Any]]:
        match table:
            case "episodes":
                return [self._shared() | self._episode()]
            case "transitions":
                return [self._shared() | self._transition(step) for step in range(2)]
            case "trajectories":
                return [self._shared() | self._trajectory()]
            case "failures":
                return [self._shared() | self._failure()] if self.cause or self.is_recovered else []
            case _:
                return [self._score()]

    def _shared(self) -> dict[str, Any]:
        return {
            "episode_id": self.episode_id,
            "revision": int(self.started_at.timestamp() * 1e6),
            "task_id": self.task_id,
            "group_id": self.task_id,
            "agent_name": "clerk",
            "model": "demo",
            "policy_version": LEARNED[self.version],
        }

    @property
    def _breakdown(self) -> dict[str, float]:
        wrong = self.cause[0] if self.cause else ""
        return {
            "answer": 0.0 if wrong else 0.7,
            "tool_use": 0.0 if wrong == "no_tool_call" else 0.2 if wrong == "invalid_arguments" else 0.3,
        }

    def _episode(self) -> dict[str, Any]:
        failed = bool(self.cause and self.cause[0] == "invalid_arguments") or self.is_recovered
        return {
            "converter_version": "1",
            "trace_ids": [self.episode_id],
            "started_at": self.started_at,
            "duration_ns": 2_400_000_000,
            "step_count": 2,
            "span_count": 4,
            "tool_call_count": 1,
            "tool_error_count": int(failed),
            "input_tokens": 96,
            "output_tokens": 24,
            "outcome": "failure" if self.cause else "success",
            "reward": sum(self._breakdown.values()),
            "reward_breakdown": self._breakdown,
            "is_terminated": True,
            "is_truncated": False,
            "error_class": self.cause[0] if self.cause else "",
            "fault_owner": self.cause[1] if self.cause else "",
        }

    def _messages(self, step: int) -> list[dict[str, Any]]:
        question = f"What do {int(self.task_id[-3:]) + 2} melons and 3 pears cost together?"
        first = [
            {"role": "system", "parts": [{"type": "text", "content": "Use the tools, then answer with a number."}]},
            {"role": "user", "parts": [{"type": "text", "content": question}]},
        ]
        if not step:
            return first
        answer = {"type": "tool_call_response", "id": "call_1", "response": self._result()["content"]}
        return [*first, self._action(0), {"role": "tool", "parts": [answer]}]

    def _action(self, step: int) -> dict[str, Any]:
        if not step:
            arguments = {"item": "melon"} if self._episode()["tool_error_count"] else {"name": "melon"}
            call = {"type": "tool_call", "id": "call_1", "name": "lookup", "arguments": arguments}
            return {"role": "assistant", "parts": [call], "finish_reason": "tool_call"}
        text = "They cost 41." if self.cause else "They cost 42."
        return {"role": "assistant", "parts": [{"type": "text", "content": text}], "finish_reason": "stop"}

    def _result(self) -> dict[str, Any]:
        failed = bool(self._episode()["tool_error_count"])
        return {
            "tool_call_id": "call_1",
            "name": "lookup",
            "status": "error" if failed else "ok",
            "error_type": "KeyError" if failed else "",
            "content": _CLASSES[0][3] if failed else json.dumps({"melon": 6, "pear": 10}),
            "duration_ns": 3_000_000,
            "span_id": "b" * 16,
        }

    def _transition(self, step: int) -> dict[str, Any]:
        is_last = step == 1
        return {
            "transition_id": f"{self.episode_id}/{step}",
            "step": step,
            "trace_id": self.episode_id,
            "span_id": f"{step}" * 16,
            "response_id": f"chatcmpl-{self.number}-{step}",
            "state": json.dumps(self._messages(step)),
            "tools": "[]",
            "action": json.dumps(self._action(step)),
            "tool_results": json.dumps([] if is_last else [self._result()]),
            "next_state": "" if is_last else json.dumps(self._messages(1)),
            "reward": sum(self._breakdown.values()),
            "reward_breakdown": self._breakdown,
            "is_terminated": is_last,
            "is_truncated": False,
            "finish_reason": "stop" if is_last else "tool_call",
            "sampling": {"temperature": "1.0"},
            "token_source": "captured",
            "capture_join": "response_id",
            "prompt_token_ids": list(range(300)) if is_last else list(range(250)),
            "response_token_ids": list(range(10, 22)),
            "logprobs": [-0.3 * (index % 5) for index in range(12)],
            "is_trainable": True,
            "untrainable_reason": "",
            "untrainable_detail": "",
            "tool_error_count": 0,
            "error_class": "",
            "fault_owner": "",
            "input_tokens": 48,
            "output_tokens": 12,
            "started_at": self.started_at + timedelta(seconds=step),
            "duration_ns": 900_000_000,
        }

    def _trajectory(self) -> dict[str, Any]:
        return {
            "trajectory_id": f"{self.episode_id}/0",
            "row_number": 0,
            "first_step": 0,
            "last_step": 1,
            "row_start": "first",
            "prompt_token_ids": list(range(250)),
            "response_token_ids": list(range(10, 52)),
            "loss_mask": [1] * 12 + [0] * 18 + [1] * 12,
            "logprobs": [-0.3 * (index % 5) if index < 12 or index >= 30 else 0.0 for index in range(42)],
            "reward": sum(self._breakdown.values()),
            "is_trainable": True,
            "untrainable_reason": "",
        }

    def _failure(self) -> dict[str, Any]:
        error_class, owner, tool, message = self.cause or _CLASSES[0]
        return {
            "failure_id": f"{self.episode_id}/0",
            "trace_id": self.episode_id,
            "span_id": "b" * 16,
            "step": 0 if tool else 1,
            "tool_name": tool,
            "error_class": error_class,
            "fault_owner": owner,
            "is_recovered": self.is_recovered,
            "message": message,
            "evidence": json.dumps({"attribute": "error.type"}),
            "confidence": 0.9,
            "rule": f"{error_class}_rule",
            "fingerprint": f"{owner}-{error_class}",
            "occurred_at": self.started_at,
        }

    def _score(self) -> dict[str, Any]:
        return {
            "score_id": f"{self.episode_id}-answer",
            "name": "answer",
            "value": self._breakdown["answer"],
            "label": "",
            "comment": "compared with the expected number",
            "source": "otel_log",
            "trace_id": self.episode_id,
            "span_id": "",
            "response_id": "",
            "session_id": "",
            "episode_key": "",
            "task_id": self.task_id,
            "scored_at": self.started_at + timedelta(seconds=2),
        }
