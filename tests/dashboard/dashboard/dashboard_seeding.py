"""Deterministic, realistic rows for every page."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import polars as pl

from spanloop.foundation.paths import DataDir
from spanloop.pipeline.run import run as run_pipeline
from spanloop.store import Store
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import JobApi, JobSpec

from ...stored_states import insert_transitions

VERSIONS: Final = ("shop-tiny@v1", "shop-tiny@v2", "shop-tiny@v3")
SUCCESS_SHARE: Final = (0.35, 0.6, 0.85)
TASKS: Final = ("refund-17", "stock-04", "price-22", "ship-09", "address-31", "cancel-12")
SYSTEM: Final = "You are the assistant of a small shop. Use the tools; answer with one sentence."
TRAINED_JOB: Final = "grpo-seeded"
INJECTION: Final = '<img src=x onerror="document.title=1"> & <b>not bold</b>'


@dataclass(frozen=True)
class Seeded:
    """Ids and counts of the seeded rows."""

    episodes: int
    successes: int
    failed_id: str
    """An episode with a failed tool call, two untrainable transitions, and three scores."""
    success_id: str
    tombstone_id: str
    fingerprint: str


def seed(store: Store, *, now: datetime | None = None, per_version: int = 20) -> Seeded:
    """Fill every table; ``per_version`` episodes for each of three policy versions, ending an hour before ``now``."""
    end = now or datetime.now(UTC)
    plans = [
        _Plan(
            version,
            index,
            end - timedelta(minutes=60 + 47 * ((len(VERSIONS) - 1 - version) * per_version + per_version - 1 - index)),
        )
        for version in range(len(VERSIONS))
        for index in range(per_version)
    ]
    tombstone = _Plan(0, 9_000, end - timedelta(days=2))
    tables: dict[str, list[dict[str, Any]]] = {
        "otel_traces": [row for plan in plans for row in plan.spans()],
        "transitions": [row for plan in plans for row in plan.transitions()],
        "episodes": [*(plan.episode() for plan in plans), tombstone.episode() | {"is_deleted": 1}],
        "trajectories": [plan.trajectory() for plan in plans],
        "failures": [row for plan in plans for row in plan.failures()],
        "scores": [row for plan in plans for row in plan.scores()],
    }
    for table, rows in tables.items():
        insert(store, table, rows)
    failed = next(plan for plan in plans if not plan.is_success)
    return Seeded(
        episodes=len(plans),
        successes=sum(plan.is_success for plan in plans),
        failed_id=failed.episode_id,
        success_id=next(plan for plan in plans if plan.is_success).episode_id,
        tombstone_id=tombstone.episode_id,
        fingerprint=failed.fingerprint,
    )


def seed_nameless(store: Store) -> None:
    """Store and convert the runs of an app that sets nothing: two failed and one answered yesterday, one answered now.

    Run it on an empty store: the pipeline converts whatever is there.
    """
    noon = datetime.now(ZoneInfo("Europe/Berlin")).replace(hour=12, minute=0, second=0, microsecond=0)
    runs = [(noon - timedelta(days=1, minutes=minutes), minutes > 0) for minutes in (0, 10, 20)]
    insert(
        store,
        "otel_traces",
        [_bare_call(number, *run) for number, run in enumerate([*runs, (datetime.now(UTC), False)])],
    )
    run_pipeline(store)


def _bare_call(number: int, at: datetime, is_failed: bool) -> dict[str, Any]:  # noqa: FBT001
    question = [{"role": "user", "parts": [{"type": "text", "content": f"How many desks are in aisle {number}?"}]}]
    answer = [{"role": "assistant", "parts": [{"type": "text", "content": "Twelve."}], "finish_reason": "stop"}]
    error = {"error.type": "InternalServerError"} if is_failed else {"gen_ai.output.messages": json.dumps(answer)}
    return {
        "Timestamp": at,
        "TraceId": f"{number:02x}".rjust(32, "e"),
        "SpanId": f"{number:02x}".rjust(16, "e"),
        "ParentSpanId": "",
        "SpanName": "chat fake-gpt",
        "SpanKind": "Client",
        "ServiceName": "bare_loop",
        "ResourceAttributes": {"service.name": "bare_loop"},
        "ScopeName": "opentelemetry.instrumentation.openai_v2",
        "SpanAttributes": {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "fake-gpt",
            "gen_ai.input.messages": json.dumps(question),
            **error,
        },
        "Duration": 900_000_000,
        "StatusCode": "Error" if is_failed else "Unset",
        "StatusMessage": "Error code: 503 - the engine is overloaded" if is_failed else "",
    }


def spans(count: int) -> list[dict[str, Any]]:
    """Span rows of episodes that no pipeline has seen."""
    now = datetime.now(UTC)
    return [row for index in range(-(-count // 5)) for row in _Plan(0, index, now).spans()][:count]


def seed_metrics(store: Store, job_id: str, *, steps: int = 30, learns: bool = True) -> None:
    """verl's metrics of one job."""
    rows: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        wobble = ((step * 7919) % 13 - 6) / 100
        gain = 1 - 0.93**step if learns else 0.1
        values = {
            "rollout_corr/k3_kl": 0.01 * gain,
            "batch_reward": -0.3 + 1.1 * gain + wobble,
            "critic/score/mean": -0.3 + 1.1 * gain + wobble,
            "actor/pg_loss": 0.08 * 0.95**step + wobble / 10,
            "actor/entropy": 1.4 * 0.97**step,
            "actor/grad_norm": 0.9 + wobble,
            "perf/throughput": 410 + 100 * wobble,
        }
        rows += [{"job_id": job_id, "step": step, "name": name, "value": value} for name, value in values.items()]
    insert(store, "training_metrics", rows)


def insert(store: Store, table: str, rows: list[dict[str, Any]]) -> None:
    """Insert rows given as dicts; a column that the table does not have is an error of the store."""
    frame = pl.DataFrame(rows, schema=store.schema(table))
    if table == "transitions":
        insert_transitions(store, frame)
    else:
        store.insert(table, frame)


@dataclass(frozen=True)
class _Plan:
    version: int
    index: int
    started_at: datetime

    @property
    def is_success(self) -> bool:
        return (self.index * 37 + self.version * 11) % 100 < 100 * SUCCESS_SHARE[self.version]

    @property
    def has_tool_error(self) -> bool:
        return not self.is_success or self.index % 5 == 0

    @property
    def owner(self) -> tuple[str, str, str, str]:
        kinds = (
            ("policy", "invalid_arguments", "lookup_order", "KeyError: 'order_id' is a required argument"),
            ("tool", "tool_exception", "warehouse", "TimeoutError: the warehouse did not answer within 5 s"),
            ("environment", "rate_limited", "lookup_order", "HTTP 429 from orders.internal: try again in 20 s"),
            ("policy", "wrong_answer", "", "The refund was promised for an order that cannot be refunded"),
        )
        return kinds[0] if self.index == 0 else kinds[(self.index + self.version) % len(kinds)]

    @property
    def policy_version(self) -> str:
        return VERSIONS[self.version]

    @property
    def task_id(self) -> str:
        return TASKS[self.index % len(TASKS)]

    @property
    def trace_id(self) -> str:
        return f"{self.version + 1:02x}{self.index:04x}".ljust(32, "a")

    @property
    def episode_id(self) -> str:
        return f"{self.trace_id}"

    @property
    def revision(self) -> int:
        return int(self.started_at.timestamp() * 1e6)

    @property
    def reward(self) -> float:
        return (1.0 if self.is_success else -0.5) - (0.1 if self.has_tool_error else 0.0)

    @property
    def fingerprint(self) -> str:
        owner, error_class, tool, _ = self.owner
        return f"{owner}-{error_class}-{tool or 'none'}"

    def _at(self, seconds: float) -> datetime:
        return self.started_at + timedelta(seconds=seconds)

    def spans(self) -> list[dict[str, Any]]:
        owner, _, tool, message = self.owner
        failed = self.has_tool_error
        shared = {
            "gen_ai.agent.name": "shopkeeper",
            "spanloop.task.id": self.task_id,
            "spanloop.episode.id": f"key-{self.episode_id[:6]}",
        }
        llm = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "shop-tiny",
            "gen_ai.response.model": self.policy_version,
            "gen_ai.usage.input_tokens": "412",
            "gen_ai.usage.output_tokens": "38",
            "gen_ai.input.messages": json.dumps(self._state(0)),
        }
        call = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool or "lookup_order",
            "gen_ai.tool.call.id": "call_1",
        }
        error = {"error.type": message.split(":")[0]} if failed else {}
        return [
            self._span("0", "", f"task {self.task_id}", (0, 4.2), shared),
            self._span(
                "1",
                "0",
                "openai.chat",
                (0.02, 1.3),
                shared | llm | {"gen_ai.response.id": f"chatcmpl-{self.episode_id[:6]}-0"},
            ),
            self._span(
                "2",
                "0",
                f"execute_tool {tool or 'lookup_order'}",
                (1.35, 0.9),
                shared | call | error,
                error=message if failed else "",
            ),
            self._span("3", "2", "GET", (1.4, 0.8), {"http.request.method": "GET", "owner": owner}),
            self._span(
                "4",
                "0",
                "openai.chat",
                (2.3, 1.1),
                shared | llm | {"gen_ai.response.id": f"chatcmpl-{self.episode_id[:6]}-1"},
            ),
        ]

    def _span(
        self,
        number: str,
        parent: str,
        name: str,
        when_s: tuple[float, float],
        attributes: dict[str, str],
        *,
        error: str = "",
    ) -> dict[str, Any]:
        offset_s, took_s = when_s
        return {
            "Timestamp": self._at(offset_s),
            "TraceId": self.trace_id,
            "SpanId": self._span_id(number),
            "ParentSpanId": self._span_id(parent) if parent else "",
            "TraceState": "",
            "SpanName": name,
            "SpanKind": "Internal",
            "ServiceName": "shop",
            "ResourceAttributes": {"service.name": "shop", "process.pid": "17"},
            "ScopeName": "opentelemetry.instrumentation.openai",
            "ScopeVersion": "0.62.4",
            "SpanAttributes": attributes,
            "Duration": int(took_s * 1e9),
            "StatusCode": "Error" if error else "Unset",
            "StatusMessage": error,
            "Events.Timestamp": [self._at(offset_s)] if error else [],
            "Events.Name": ["exception"] if error else [],
            "Events.Attributes": [{"exception.message": error}] if error else [],
            "Links.TraceId": [],
            "Links.SpanId": [],
            "Links.TraceState": [],
            "Links.Attributes": [],
            "ScopeAttributes": {},
        }

    def _span_id(self, number: str) -> str:
        return f"{number}{self.version}{self.index:04x}".ljust(16, "b")

    def episode(self) -> dict[str, Any]:
        owner, error_class, _, _ = self.owner
        return {
            "episode_id": self.episode_id,
            "revision": self.revision,
            "converter_version": "1",
            "episode_key": f"key-{self.episode_id[:6]}",
            "task_id": self.task_id,
            "group_id": self.task_id,
            "session_id": "",
            "service_name": "shop",
            "agent_name": "shopkeeper",
            "model": "shop-tiny",
            "policy_version": self.policy_version,
            "trace_ids": [self.trace_id],
            "started_at": self.started_at,
            "duration_ns": 4_200_000_000,
            "step_count": 2,
            "span_count": 5,
            "tool_call_count": 1,
            "tool_error_count": int(self.has_tool_error),
            "input_tokens": 824,
            "output_tokens": 76,
            "outcome": "success" if self.is_success else "failure",
            "reward": self.reward,
            "reward_breakdown": {"reward": 1.0 if self.is_success else -0.5}
            | ({"tool_error": -0.1} if self.has_tool_error else {}),
            "is_terminated": True,
            "is_truncated": False,
            "error_class": "" if self.is_success else error_class,
            "fault_owner": "" if self.is_success else owner,
            "marks": ["good", "re*viewed"] if self.is_success else [],
        }

    def _state(self, step: int) -> list[dict[str, Any]]:
        first = [
            {"role": "system", "parts": [{"type": "text", "content": SYSTEM}]},
            {
                "role": "user",
                "parts": [{"type": "text", "content": f"Can I get a refund for order 18{self.index:02d}? {INJECTION}"}],
            },
        ]
        if step == 0:
            return first
        answer = {"type": "tool_call_response", "id": "call_1", "response": self._result()["content"]}
        return [*first, self._action(0), {"role": "tool", "parts": [answer]}]

    def _action(self, step: int) -> dict[str, Any]:
        if step == 0:
            arguments = {"order": 1800 + self.index} if self.has_tool_error else {"order_id": 1800 + self.index}
            call = {
                "type": "tool_call",
                "id": "call_1",
                "name": self.owner[2] or "lookup_order",
                "arguments": arguments,
            }
            return {"role": "assistant", "parts": [call], "finish_reason": "tool_call"}
        text = "Yes: the order arrived nine days ago." if self.is_success else "Your refund is on its way."
        return {"role": "assistant", "parts": [{"type": "text", "content": text}], "finish_reason": "stop"}

    def _result(self) -> dict[str, Any]:
        failed = self.has_tool_error
        message = self.owner[3]
        return {
            "tool_call_id": "call_1",
            "name": self.owner[2] or "lookup_order",
            "status": "error" if failed else "ok",
            "error_type": message.split(":")[0] if failed else "",
            "content": message if failed else json.dumps({"order_id": 1800 + self.index, "state": "delivered"}),
            "duration_ns": 900_000_000,
            "span_id": self._span_id("2"),
        }

    def transitions(self) -> list[dict[str, Any]]:
        return [self._transition(step) for step in range(2)]

    def _transition(self, step: int) -> dict[str, Any]:
        owner, error_class, _, _ = self.owner
        blocked = owner == "environment" and self.has_tool_error
        prompt = list(range(100, 130)) if step == 0 else list(range(100, 160))
        response = [(step * 31 + number * 7) % 512 for number in range(12)]
        return {
            "transition_id": f"{self.episode_id}/{step}",
            "episode_id": self.episode_id,
            "revision": self.revision,
            "step": step,
            "task_id": self.task_id,
            "group_id": self.task_id,
            "agent_name": "shopkeeper",
            "trace_id": self.trace_id,
            "span_id": self._span_id("1" if step == 0 else "4"),
            "response_id": f"chatcmpl-{self.episode_id[:6]}-{step}",
            "model": "shop-tiny",
            "policy_version": self.policy_version,
            "state": json.dumps(self._state(step)),
            "tools": "[]",
            "action": json.dumps(self._action(step)),
            "tool_results": json.dumps([self._result()] if step == 0 else []),
            "next_state": json.dumps(self._state(1)) if step == 0 else "",
            "reward": self.reward if step == 1 else None,
            "reward_breakdown": {"reward": self.reward} if step == 1 else {},
            "is_terminated": step == 1,
            "is_truncated": False,
            "finish_reason": "tool_call" if step == 0 else "stop",
            "sampling": {"temperature": "1.0"},
            "token_source": "captured",
            "capture_join": "response_id",
            "prompt_token_ids": prompt,
            "response_token_ids": response,
            "logprobs": [-0.05 * number for number in range(12)],
            "is_trainable": not blocked,
            "untrainable_reason": "environment_fault" if blocked else "",
            "untrainable_detail": "the tool's service refused the call" if blocked else "",
            "tool_error_count": int(self.has_tool_error and step == 0),
            "error_class": error_class if self.has_tool_error and step == 0 else "",
            "fault_owner": owner if self.has_tool_error and step == 0 else "",
            "input_tokens": 412,
            "output_tokens": 38,
            "started_at": self._at(0.02 if step == 0 else 2.3),
            "duration_ns": 1_300_000_000,
        }

    def trajectory(self) -> dict[str, Any]:
        given = 18
        mask = [1] * 12 + [0] * given + [1] * 12
        logprobs = (
            [-0.05 * number for number in range(12)] + [0.0] * given + [-0.31 * (number % 4) for number in range(12)]
        )
        blocked = self.owner[0] == "environment" and self.has_tool_error
        return {
            "trajectory_id": f"{self.episode_id}/0",
            "episode_id": self.episode_id,
            "revision": self.revision,
            "row_number": 0,
            "task_id": self.task_id,
            "group_id": self.task_id,
            "agent_name": "shopkeeper",
            "policy_version": self.policy_version,
            "first_step": 0,
            "last_step": 1,
            "row_start": "first",
            "prompt_token_ids": list(range(100, 130)),
            "response_token_ids": [(number * 17) % 512 for number in range(len(mask))],
            "loss_mask": mask,
            "logprobs": logprobs,
            "reward": self.reward,
            "is_trainable": not blocked,
            "untrainable_reason": "environment_fault" if blocked else "",
        }

    def failures(self) -> list[dict[str, Any]]:
        if not self.has_tool_error:
            return []
        owner, error_class, tool, message = self.owner
        return [
            {
                "failure_id": f"{self.episode_id}/0",
                "episode_id": self.episode_id,
                "revision": self.revision,
                "task_id": self.task_id,
                "trace_id": self.trace_id,
                "span_id": self._span_id("2"),
                "step": 0,
                "agent_name": "shopkeeper",
                "tool_name": tool,
                "model": "shop-tiny",
                "policy_version": self.policy_version,
                "error_class": error_class,
                "fault_owner": owner,
                "is_recovered": self.is_success,
                "message": message,
                "evidence": json.dumps({"span": self._span_id("2"), "attribute": "error.type"}),
                "confidence": 0.9,
                "rule": f"{error_class}_on_tool_span",
                "fingerprint": self.fingerprint,
                "occurred_at": self._at(1.35),
            }
        ]

    def scores(self) -> list[dict[str, Any]]:
        return [
            {
                "score_id": f"{self.episode_id}-reward",
                "name": "reward",
                "value": 1.0 if self.is_success else -0.5,
                "label": "pass" if self.is_success else "fail",
                "comment": "checked against the order book",
                "source": "otel_log",
                "trace_id": self.trace_id,
                "span_id": self._span_id("0"),
                "response_id": "",
                "session_id": "",
                "episode_key": f"key-{self.episode_id[:6]}",
                "task_id": self.task_id,
                "scored_at": self._at(4.2),
            }
        ]


def model_folder(path: Path, content: str = "weights") -> Path:
    """Make a folder that the registry accepts as a model and the gateway can be told to serve; nothing loads it."""
    path.mkdir(parents=True)
    (path / "config.json").write_text('{"model_type": "llama"}')
    head = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({"__metadata__": {"content": content}, "lm_head.weight": head}).encode()
    (path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    return path


def seed_control(data_dir: DataDir, scratch: Path) -> list[str]:
    """Register three versions, a job in each state that needs no scheduler, and two schedules; return the jobs' ids."""
    api, registry = JobApi(data_dir), Registry(data_dir)
    registry.add("shop-tiny", model_folder(scratch / "v1", "one"), metadata={"made": "on the spot"})
    spec = JobSpec.of(kind="dr_grpo", base="shop-tiny@v1", steps=30, learning_rate=1e-5, deploy_always=True)
    ids: list[str] = []
    for number in (2, 3):
        job = api.submit(spec.model_copy(update={"base": f"shop-tiny@v{number - 1}"}))
        folder = model_folder(scratch / f"v{number}", f"weights {number}")
        registry.add("shop-tiny", folder, parent=f"shop-tiny@v{number - 1}", job_id=job.id)
        ids.append(job.id)
    registry.record_deployment("shop-tiny@v3", job_id=ids[-1])
    api.cancel(ids[0])
    api.schedule(spec, cron="0 3 * * *")
    imitation = JobSpec.of(kind="sft", base="shop-tiny@v1", steps=30, deploy_always=True)
    api.schedule(imitation, at=datetime(2099, 1, 1, tzinfo=UTC))
    log = data_dir.jobs / ids[-1] / "log.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(f"step {step} critic/rewards/mean {step / 30:.3f}\n" for step in range(1, 31)))
    return ids
