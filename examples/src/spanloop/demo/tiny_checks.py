"""Check the store after the tiny demo: each claim is compared with the agent's report or recomputed.

A claim that cannot be checked fails. The checks only read.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .shop_agent import AttemptReport

if TYPE_CHECKING:
    import polars as pl

    from spanloop.foundation.paths import DataDir
    from spanloop.store import Store


class DemoRun(NamedTuple):
    """One run of the tiny demo."""

    model: str
    """The name that the agent requested."""
    base: str
    version: str
    job_id: str
    steps: int
    before: Path
    """The agent's report with ``base``."""
    after: Path
    """The agent's report with ``version``."""


class CheckResult(NamedTuple):
    """One claim and what was observed."""

    claim: str
    ok: bool
    observed: str


class _Data(NamedTuple):
    """The agent's reports and the stored rows."""

    before: list[AttemptReport]
    after: list[AttemptReport]
    spans: "pl.DataFrame"
    transitions: "pl.DataFrame"
    trajectories: "pl.DataFrame"
    metrics: "pl.DataFrame"

    @property
    def attempts(self) -> list[AttemptReport]:
        return self.before + self.after


def read_report(path: Path) -> list[AttemptReport]:
    """Read an agent's report of its attempts."""
    return [AttemptReport(**fields) for fields in json.loads(path.read_text())]


def check_run(data_dir: "DataDir", demo_run: DemoRun) -> list[CheckResult]:
    """Check every claim about the run."""
    from spanloop.store import connect
    from spanloop.training.models.registry import Registry

    with connect(data_dir) as store:
        data = _load_data(store, demo_run)
    registry = Registry(data_dir)
    base, trained = (registry.folder(registry.get(reference)) for reference in (demo_run.base, demo_run.version))
    return [
        _check_spans(data),
        _check_transitions(data),
        _check_episodes(data),
        _check_tool_errors(data),
        _check_tokens(data, base),
        _check_token_rows(data),
        _check_metrics(data, demo_run),
        _check_weights(base, trained, demo_run),
        _check_served_version(data, base, trained, demo_run),
    ]


def _load_data(store: "Store", demo_run: DemoRun) -> _Data:
    transitions = store.query("demo_transitions", model=demo_run.model)
    trajectories = store.query("demo_trajectories")
    return _Data(
        before=read_report(demo_run.before),
        after=read_report(demo_run.after),
        spans=store.query("demo_spans", model=demo_run.model),
        transitions=transitions,
        trajectories=trajectories.filter(
            trajectories["episode_id"].is_in(transitions["episode_id"].unique().to_list())
        ),
        metrics=store.query("demo_metrics", job_id=demo_run.job_id),
    )


def _check_spans(data: _Data) -> CheckResult:
    reported = sorted(response_id for attempt in data.attempts for response_id in attempt.response_ids)
    stored = sorted(data.spans["response_id"])
    return CheckResult("every model call is a span", reported == stored, f"{len(stored)} spans, {len(reported)} calls")


def _check_transitions(data: _Data) -> CheckResult:
    spans, transitions = set(data.spans["span_id"]), list(data.transitions["span_id"])
    trainable = int(data.transitions["is_trainable"].sum())
    ok = set(transitions) == spans and len(transitions) == len(spans)
    return CheckResult("every span is one transition", ok, f"{len(transitions)} transitions, {trainable} trainable")


def _check_episodes(data: _Data) -> CheckResult:
    rewards = {row["response_id"]: row["episode_reward"] for row in data.transitions.iter_rows(named=True)}
    episodes = data.transitions["episode_id"].n_unique()
    equal = sum(all(rewards.get(each) == attempt.reward for each in attempt.response_ids) for attempt in data.attempts)
    ok = episodes == equal == len(data.attempts)
    return CheckResult(
        "every attempt is one episode with its reward", ok, f"{episodes} episodes, {equal} equal rewards"
    )


def _check_tool_errors(data: _Data) -> CheckResult:
    failed = {call for attempt in data.attempts for call in attempt.failed_calls}
    stored: set[str] = set()
    for action, results in data.transitions.select("action", "tool_results").iter_rows():
        called = {part["id"] for part in json.loads(action)["parts"] if part["type"] == "tool_call"}
        stored |= {each["tool_call_id"] for each in json.loads(results) if each["status"] == "error"} & called
    ok = bool(failed) and stored == failed
    return CheckResult("tool errors are stored with the action that caused them", ok, f"{len(stored)} of {len(failed)}")


def _check_tokens(data: _Data, model: Path) -> CheckResult:
    exact = count_exact_prompts(data.transitions, model)
    ok = exact == len(data.transitions) > 0
    return CheckResult("stored token ids are the sampled ones", ok, f"{exact} of {len(data.transitions)} transitions")


def count_exact_prompts(transitions: "pl.DataFrame", model: Path) -> int:
    """Count the transitions with the prompt that the chat template renders, and a log-probability for each sampled id.

    A prompt that continues the step before has that step's ids, in which the policy may have spelled a word with other
    tokens than its tokenizer does; its text is the template's.

    Args:
        transitions: By episode and step, with ``episode_id``, ``state``, ``tools``, ``prompt_token_ids``,
            ``response_token_ids`` and ``logprobs``.
        model: The folder with tokenizer and chat template.
    """
    from .recomputation import ChatTemplate

    template = ChatTemplate(model)
    exact, before = 0, ""
    previous: list[int] = []
    columns = ("episode_id", "state", "tools", "prompt_token_ids", "response_token_ids", "logprobs")
    for episode_id, state, tools, prompt, response, logprobs in transitions.select(columns).iter_rows():
        messages = [_openai_message(each) for each in json.loads(state)]
        rendered = template.render(messages, [{"type": "function", "function": each} for each in json.loads(tools)])
        continues = episode_id == before and prompt[: len(previous)] == previous
        is_exact = prompt == rendered or (continues and template.text(prompt) == template.text(rendered))
        exact += is_exact and 0 < len(response) == len(logprobs)
        before, previous = episode_id, [*prompt, *response]
    return exact


def _openai_message(message: dict[str, Any]) -> dict[str, Any]:
    parts = message["parts"]
    text = "".join(str(part["content"]) for part in parts if part["type"] == "text")
    calls = [
        {"type": "function", "function": {"name": part["name"], "arguments": part["arguments"]}}
        for part in parts
        if part["type"] == "tool_call"
    ]
    response = "".join(str(part["response"]) for part in parts if part["type"] == "tool_call_response")
    return {"role": message["role"], "content": response or text, "tool_calls": calls}


def _check_token_rows(data: _Data) -> CheckResult:
    exact, merged = count_exact_rows(data.transitions, data.trajectories)
    ok = exact == len(data.trajectories) and merged > 0
    return CheckResult(
        "token rows train on the sampled tokens and nothing else",
        ok,
        f"{exact} of {len(data.trajectories)} rows exact, {merged} merged from several steps",
    )


def count_exact_rows(transitions: "pl.DataFrame", trajectories: "pl.DataFrame") -> tuple[int, int]:
    """Count the token rows that train on exactly what their trainable steps sampled, and those with several steps.

    Args:
        transitions: ``episode_id``, ``step``, ``response_token_ids`` and ``is_trainable``.
        trajectories: ``episode_id``, ``first_step``, ``last_step``, ``response_token_ids`` and ``loss_mask``.
    """
    columns = ("episode_id", "step", "response_token_ids", "is_trainable")
    rows = transitions.select(columns).iter_rows()
    sampled = {(episode, step): list(ids) if is_trainable else [] for episode, step, ids, is_trainable in rows}
    exact = merged = 0
    for row in trajectories.iter_rows(named=True):
        steps = range(row["first_step"], row["last_step"] + 1)
        expected = [token for step in steps for token in sampled[row["episode_id"], step]]
        trained = [token for token, mask in zip(row["response_token_ids"], row["loss_mask"], strict=True) if mask]
        exact += trained == expected
        merged += len(steps) > 1
    return exact, merged


def _check_metrics(data: _Data, demo_run: DemoRun) -> CheckResult:
    steps, names = data.metrics["step"].n_unique(), data.metrics["name"].n_unique()
    ok = steps >= demo_run.steps and names > 0
    return CheckResult("metrics of every training step are stored", ok, f"{names} metrics of {steps} steps")


def _check_weights(base: Path, trained: Path, demo_run: DemoRun) -> CheckResult:
    from .recomputation import count_changed_tensors

    changed, total = count_changed_tensors(base, trained)
    return CheckResult(
        f"the weights of {demo_run.version} and {demo_run.base} differ", changed > 0, f"{changed} of {total} tensors"
    )


def _check_served_version(data: _Data, base: Path, trained: Path, demo_run: DemoRun) -> CheckResult:
    from spanloop.training.run.logprob_agreement import logprob_agreement

    response_ids = {response_id for attempt in data.after for response_id in attempt.response_ids}
    rows = data.transitions.filter(data.transitions["response_id"].is_in(sorted(response_ids)))
    versions = set(rows["policy_version"])
    gap_new, gap_old = (logprob_agreement(folder, rows).mean for folder in (trained, base))
    ok = versions == {demo_run.version} and gap_new < gap_old
    observed = f"mean logprob gap {gap_new:.4f} to {demo_run.version}, {gap_old:.4f} to {demo_run.base}"
    return CheckResult(f"{demo_run.version} is the served version", ok, observed)
