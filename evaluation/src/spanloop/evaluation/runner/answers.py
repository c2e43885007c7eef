"""What an attempt's answer is: the last line of its output, the whole output, or the last message of its spans."""

import time
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final, cast

import httpx

from spanloop.converters import convert
from spanloop.converters.options import Options
from spanloop.converters.rewards import Attempt, NamedReward, main_reward
from spanloop.converters.rewards.comparison import text_of
from spanloop.evaluation.graders import GradingError
from spanloop.foundation.keys.service_keys import trusted_certificates
from spanloop.foundation.paths import DataDir
from spanloop.messages import parse_json_or_none
from spanloop.store import Store

from .attempt import AttemptEnd, TaskAttempt

ANSWER_KEY: Final = "answer"
ENVIRONMENT_SCORE: Final = "environment"
"""The name of the reward of an attempt's environment, where a grader weighs it."""
_EXPORT_DELAY_S: Final = 2.0
"""An instrumented process sends its spans at least this often."""
_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.3
_HEALTH_TIMEOUT_S: Final = 2.0
_NO_IDS: Final[dict[str, list[str]]] = {"trace_ids": [], "response_ids": []}


class Output(StrEnum):
    """What of an agent is its answer."""

    LINE = "line"
    """The last line of stdout that is not blank; if that is a JSON object with ``answer``, its value."""
    STDOUT = "stdout"
    """All of stdout."""
    MESSAGE = "message"
    """The text of the last model call, out of the attempt's spans."""


def answer_of_output(stdout: str, output: Output) -> str:
    """Return the answer in what a command printed; empty where the spans have it."""
    if output is Output.STDOUT:
        return stdout.strip()
    if output is Output.MESSAGE:
        return ""
    line = next((line for line in reversed(stdout.splitlines()) if line.strip()), "").strip()
    found = parse_json_or_none(line) if line.startswith("{") else None
    if isinstance(found, dict) and ANSWER_KEY in found:
        return text_of(cast("dict[str, Any]", found)[ANSWER_KEY])
    return line


class RecordedAttempts:
    """Reads what the spans of attempts hold.

    Args:
        data_dir: Of the collector that the spans are sent to.
        store: The store that it writes to.
    """

    def __init__(self, data_dir: DataDir, store: Store) -> None:
        self._data_dir: Final = data_dir
        self._store: Final = store

    def read(self, attempt: TaskAttempt, end: AttemptEnd, should_stop: Callable[[], bool]) -> Attempt | None:
        """Return the attempt's episode, once the collector has stored what it was sent.

        The reward of its environment is the score named ``environment``. None when ``should_stop`` said so first.

        Raises:
            GradingError: No model call is stored after a minute.
            StoreError: ClickHouse is unreachable.
        """
        complete_s = (end.started_us / 1_000 + end.duration_ms) / 1_000 + _EXPORT_DELAY_S
        deadline_s = time.time() + _TIMEOUT_S
        while time.time() < deadline_s:
            if time.time() > complete_s and self._has_stored(complete_s):
                break
            if should_stop():
                return None
            time.sleep(_POLL_S)
        recorded = self._recorded(attempt)
        if recorded is None:
            raise GradingError(
                f"No model call of attempt {attempt.number} at task {attempt.task.id!r} is stored "
                f"(episode {attempt.episode_id}).",
                next_step="Check that the agent is instrumented: spanloop doctor --app; or grade what it prints.",
            )
        reward = None if end.outcome is None else end.outcome.reward
        return recorded if reward is None else _with_score(recorded, ENVIRONMENT_SCORE, reward)

    def _has_stored(self, until_s: float) -> bool:
        """Whether the collector has stored all that it had received at ``until_s`` (seconds since the epoch)."""
        collector = self._data_dir.find("collector")
        if collector is None:
            return False
        verify = trusted_certificates(collector.url)
        try:
            with httpx.Client(timeout=_HEALTH_TIMEOUT_S, trust_env=False, verify=verify) as client:
                spool = client.get(f"{collector.url}/healthz").json()["spool"]
        except (httpx.HTTPError, ValueError, KeyError):
            return False
        return not spool["records"] or time.time() - float(spool["oldest_age_s"]) > until_s

    def _recorded(self, attempt: TaskAttempt) -> Attempt | None:
        traces = self._store.query("attempt_traces", episode_id=attempt.episode_id).row(0, named=True)
        trace_ids: list[str] = traces["trace_ids"]
        if not trace_ids:
            return None
        bounds = {"from_ns": traces["from_ns"], "until_ns": traces["until_ns"]}
        found: list[Attempt] = []
        convert(
            self._store.query("pipeline_spans", trace_ids=trace_ids, **bounds),
            scores=self._store.query(
                "pipeline_scores",
                trace_ids=trace_ids,
                response_ids=[],
                episode_keys=[attempt.episode_id],
                session_ids=[],
            ),
            generations=self._store.query("pipeline_generations", **_NO_IDS, **bounds),
            logs=self._store.query("pipeline_logs", trace_ids=trace_ids),
            options=Options(reward_functions=(NamedReward("recorded", found.append),)),
        )
        found.sort(key=lambda each: (each.episode.episode_key != attempt.episode_id, each.episode.episode_id))
        return found[0] if found else None


def last_message(recorded: Attempt) -> str:
    """Return the text of the attempt's last model call that acted; empty without one."""
    outputs = (step.span.output for step in reversed(recorded.episode.steps))
    return next((output[0].text for output in outputs if output), "")


def _with_score(recorded: Attempt, name: str, value: float) -> Attempt:
    breakdown = {name: value, **recorded.scores.breakdown}
    return replace(recorded, scores=recorded.scores._replace(breakdown=breakdown, value=main_reward(breakdown)))
