"""What the store must hold after the tiny demo, each claim checked against the agent's own account or recomputed.

A claim that cannot be checked fails. Nothing here writes.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .settle import Outcome, read_report

if TYPE_CHECKING:
    import polars as pl

    from spanloop.datadir import DataDir
    from spanloop.store import Store


class RunRecord(NamedTuple):
    """What the demo did."""

    base: str
    version: str
    job_id: str
    steps: int
    before: Path
    """The agent's report of its run with ``base``."""
    after: Path
    """The same with ``version``."""


class Finding(NamedTuple):
    """One claim and what was seen."""

    claim: str
    ok: bool
    seen: str


class _Seen(NamedTuple):
    """Everything that the claims are checked against."""

    before: list[Outcome]
    after: list[Outcome]
    spans: "pl.DataFrame"
    transitions: "pl.DataFrame"
    trajectories: "pl.DataFrame"
    metrics: "pl.DataFrame"

    @property
    def outcomes(self) -> list[Outcome]:
        return self.before + self.after


def findings(data_dir: "DataDir", record: RunRecord) -> list[Finding]:
    """Check every claim."""
    from spanloop.store import connect
    from spanloop.training.registry import Registry

    with connect(data_dir) as store:
        seen = _look(store, record)
    registry = Registry(data_dir)
    base, trained = registry.get(record.base).path, registry.get(record.version).path
    return [
        _every_call_is_a_span(seen),
        _every_span_is_accounted_for(seen),
        _every_attempt_is_an_episode_with_its_reward(seen),
        _tool_errors_are_attached(seen),
        _tokens_are_exact(seen, base),
        _rows_are_merged(seen),
        _metrics_of_every_step(seen, record),
        _weights_changed(base, trained, record),
        _new_version_answers(seen, base, trained, record),
    ]


def _look(store: "Store", record: RunRecord) -> _Seen:
    return _Seen(
        before=read_report(record.before),
        after=read_report(record.after),
        spans=store.query("demo_spans"),
        transitions=store.query("demo_transitions"),
        trajectories=store.query("demo_trajectories"),
        metrics=store.query("demo_metrics", job_id=record.job_id),
    )


def _every_call_is_a_span(seen: _Seen) -> Finding:
    said = sorted(each for outcome in seen.outcomes for each in outcome.response_ids)
    stored = sorted(seen.spans["response_id"])
    return Finding("every model call is one span", said == stored, f"{len(stored)} spans for {len(said)} calls")


def _every_span_is_accounted_for(seen: _Seen) -> Finding:
    spans, transitions = set(seen.spans["span_id"]), list(seen.transitions["span_id"])
    trainable = int(seen.transitions["is_trainable"].sum())
    ok = set(transitions) == spans and len(transitions) == len(spans)
    return Finding("every span is one transition", ok, f"{len(transitions)} transitions, {trainable} trainable")


def _every_attempt_is_an_episode_with_its_reward(seen: _Seen) -> Finding:
    rewards = {row["response_id"]: row["episode_reward"] for row in seen.transitions.iter_rows(named=True)}
    episodes = seen.transitions["episode_id"].n_unique()
    right = sum(all(rewards.get(each) == outcome.reward for each in outcome.response_ids) for outcome in seen.outcomes)
    ok = episodes == right == len(seen.outcomes)
    return Finding("every attempt is one episode with its reward", ok, f"{episodes} episodes, {right} rewards as given")


def _tool_errors_are_attached(seen: _Seen) -> Finding:
    said = {call for outcome in seen.outcomes for call in outcome.failed_calls}
    attached: set[str] = set()
    for action, results in seen.transitions.select("action", "tool_results").iter_rows():
        called = {part["id"] for part in json.loads(action)["parts"] if part["type"] == "tool_call"}
        attached |= {each["tool_call_id"] for each in json.loads(results) if each["status"] == "error"} & called
    ok = bool(said) and attached == said
    return Finding("tool errors hang on the action that caused them", ok, f"{len(attached)} of {len(said)}")


def _tokens_are_exact(seen: _Seen, model: Path) -> Finding:
    from .recompute import chat_renderer

    render = chat_renderer(model)
    exact = 0
    columns = ("state", "tools", "prompt_token_ids", "response_token_ids", "logprobs")
    for state, tools, prompt_ids, response_ids, logprobs in seen.transitions.select(columns).iter_rows():
        messages = [_openai_message(each) for each in json.loads(state)]
        rendered = render(messages, [{"type": "function", "function": each} for each in json.loads(tools)])
        exact += rendered == list(prompt_ids) and 0 < len(response_ids) == len(logprobs)
    ok = exact == len(seen.transitions) > 0
    return Finding("token ids are those that were sampled", ok, f"{exact} of {len(seen.transitions)} transitions exact")


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


def _rows_are_merged(seen: _Seen) -> Finding:
    exact, merged = exact_rows(seen.transitions, seen.trajectories)
    ok = exact == len(seen.trajectories) and merged > 0
    return Finding(
        "token rows train on what was sampled and nothing else",
        ok,
        f"{exact} of {len(seen.trajectories)} rows exact, {merged} merged from several steps",
    )


def exact_rows(transitions: "pl.DataFrame", trajectories: "pl.DataFrame") -> tuple[int, int]:
    """How many token rows train on exactly the tokens that their steps sampled, and how many have several steps.

    Args:
        transitions: ``episode_id``, ``step`` and ``response_token_ids``.
        trajectories: ``episode_id``, ``first_step``, ``last_step``, ``response_token_ids`` and ``loss_mask``.
    """
    columns = ("episode_id", "step", "response_token_ids")
    sampled = {(episode, step): list(ids) for episode, step, ids in transitions.select(columns).iter_rows()}
    exact = merged = 0
    for row in trajectories.iter_rows(named=True):
        steps = range(row["first_step"], row["last_step"] + 1)
        expected = [token for step in steps for token in sampled[row["episode_id"], step]]
        kept = [token for token, mask in zip(row["response_token_ids"], row["loss_mask"], strict=True) if mask]
        exact += kept == expected
        merged += len(steps) > 1
    return exact, merged


def _metrics_of_every_step(seen: _Seen, record: RunRecord) -> Finding:
    steps, names = seen.metrics["step"].n_unique(), seen.metrics["name"].n_unique()
    ok = steps >= record.steps and names > 0
    return Finding("metrics of every training step are stored", ok, f"{names} metrics of {steps} steps")


def _weights_changed(base: Path, trained: Path, record: RunRecord) -> Finding:
    from .recompute import weights_differ

    changed, total = weights_differ(base, trained)
    return Finding(
        f"{record.version} has other weights than {record.base}", changed > 0, f"{changed} of {total} tensors"
    )


def _new_version_answers(seen: _Seen, base: Path, trained: Path, record: RunRecord) -> Finding:
    from .recompute import logprob_gaps

    said = {each for outcome in seen.after for each in outcome.response_ids}
    rows = seen.transitions.filter(seen.transitions["response_id"].is_in(sorted(said)))
    versions = set(rows["policy_version"])
    gap_new, gap_old = logprob_gaps(rows, [trained, base])
    ok = versions == {record.version} and gap_new < gap_old
    text = f"mean logprob gap {gap_new:.4f} to {record.version}, {gap_old:.4f} to {record.base}"
    return Finding(f"{record.version} is the one that answers", ok, text)
