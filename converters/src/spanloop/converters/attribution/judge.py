"""A language model as one more rule: asked where a failed episode went wrong that no other rule explains.

The model is any callable from prompt to answer: nothing here knows how to reach one. Answers are cached by
judge and prompt in any mapping of text (a dict, an opened ``shelve``), so converting again asks nothing again. An
answer that cannot be understood is not cached and counts as none: the rule keeps silent, and the next one speaks.
"""

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from hashlib import blake2b
from math import isfinite
from typing import Final, cast

from pydantic import InstanceOf

from spanloop.converters.enums import FaultOwner
from spanloop.messages import parse_json_or_none

from ..steps import Episode, Step
from .base import EndingRule, ErrorClass, Finding, LocatedFinding

Ask = Callable[[str], str]
"""From a prompt to a model's answer."""

_MOST_CHARACTERS: Final = 1_500
"""Most characters of one message in a prompt: its beginning and its end."""

_QUESTION: Final = """An agent failed at a task. Find the one step that decided the failure: the earliest mistake \
without which the task could have succeeded.

{reward}
{steps}

Answer with one JSON object and nothing else:
{{"step": <number>, "error_class": "<one of: {classes}, or a class of your own>", \
"owner": "<one of: {owners}>", "confidence": <0 to 1>, "reason": "<one sentence>"}}"""


@dataclass(frozen=True)
class AskedJudge:
    """A judge that answers in JSON, and what it has answered before."""

    ask: Ask
    name: str
    """Model and settings; another name is another judge to the cache."""
    cache: MutableMapping[str, str] = field(default_factory=dict[str, str])

    def answer(self, prompt: str) -> dict[str, object] | None:
        """The JSON object that the judge answers ``prompt`` with; None when there is none in its answer."""
        key = blake2b(f"{self.name}\0{prompt}".encode("utf-8", "replace"), digest_size=16).hexdigest()
        text = self.cache.get(key)
        is_new = text is None
        if text is None:
            text = self.ask(prompt)
        answer = json_object_in(text)
        if answer is not None and is_new:
            self.cache[key] = text
        return answer


def json_object_in(text: str) -> dict[str, object] | None:
    """The JSON object between the first and the last brace of ``text``."""
    value = parse_json_or_none(text[max(text.find("{"), 0) : text.rfind("}") + 1])
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


class LlmJudge(EndingRule):
    """Asks a language model: ``RULES._replace(endings=(LlmJudge(judge=judge), *RULES.endings))``."""

    judge: InstanceOf[AskedJudge]
    """The judge, with its cache."""

    def find(self, episode: Episode, reward: float | None) -> LocatedFinding | None:
        """Return the judge's finding; None where its answer cannot be understood."""
        answer = self.judge.answer(question(episode, reward))
        return None if answer is None else _located(episode, answer, self.judge.name)


def question(episode: Episode, reward: float | None) -> str:
    """Return the judge's prompt about a failed episode."""
    return _QUESTION.format(
        reward="" if reward is None else f"Its reward was {reward:g}.\n",
        steps=transcript(episode),
        classes=", ".join(ErrorClass),
        owners=", ".join(FaultOwner),
    )


def transcript(episode: Episode) -> str:
    """An episode in words, long messages cut in the middle."""
    first = episode.first_step.span.input
    start = [f"[{message.role}]\n{_cut(message.text)}" for message in first if message.text]
    return "\n\n".join([*start, *(_shown(step) for step in episode.steps)])


def _shown(step: Step) -> str:
    span = step.span
    output = span.output[0] if span.output else None
    lines = [f"[step {step.index}] {step.agent_name}".rstrip()]
    if output is None:
        lines.append(f"(no answer: {span.exception.message or span.status_message or span.error_type})")
    else:
        lines += [_cut(output.text)] if output.text else []
        lines += [f"calls {call.name}({_cut(call.arguments)})" for call in output.tool_calls]
    lines += [f"{result.name} answered: {_cut(result.content)}" for result in step.results]
    return "\n".join(lines)


def _cut(text: str) -> str:
    half = _MOST_CHARACTERS // 2
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:half]} … {text[-half:]}"


def _located(episode: Episode, answer: dict[str, object], judge: str) -> LocatedFinding | None:
    index, confidence, error_class = answer.get("step"), answer.get("confidence", 0.5), answer.get("error_class")
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(episode.steps):
        return None
    if not isinstance(error_class, str) or not error_class or answer.get("owner") not in set(FaultOwner):
        return None
    sure = float(confidence) if isinstance(confidence, int | float) and isfinite(confidence) else 0.5
    step = episode.steps[index]
    reason = str(answer.get("reason", ""))
    finding = Finding(
        error_class, FaultOwner(str(answer["owner"])), min(max(sure, 0.0), 1.0), reason, {"judge": judge, **answer}
    )
    return LocatedFinding(step, finding, step.span)
