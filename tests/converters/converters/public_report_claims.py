"""Sentences of a report's expectation, as checks of what the conversion gives.

A claim is a phrase that the expectations use and what has to hold where one uses it. What follows an ", or" is as good
as what stands before it.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import polars as pl

from spanloop.converters.enums import FaultOwner, UntrainableReason
from spanloop.converters.exports import KINDS, ExportOptions
from spanloop.converters.tokens.message_numbers import with_state_texts

from .converters_world import exported_transitions
from .otlp_json import Delivered

Json = dict[str, Any]
NUMBERS: Final = {"one": 1, "two": 2, "three": 3, "four": 4}
NUMBER: Final = rf"(\d+|{'|'.join(NUMBERS)})"
REASONS: Final = frozenset(UntrainableReason)
UNREADABLE: Final = REASONS & {"missing_content", "malformed_messages"}


class Report:
    """An input, the text beside it and what the conversion makes of it."""

    def __init__(self, text: str, delivered: Delivered) -> None:
        self.expected: Final = text.partition("expects\n")[2].partition("\n## ")[0].strip().lower()
        self.delivered: Final = delivered
        self.converted: Final = delivered.convert()

    @cached_property
    def steps(self) -> list[Json]:
        """The transitions in order, with the texts of their states."""
        rows = with_state_texts(self.converted.transitions, self.converted.messages)
        return rows.sort("episode_id", "step").to_dicts()

    @cached_property
    def longest_episode(self) -> Json:
        return self.converted.episodes.sort("step_count").to_dicts()[-1]

    @cached_property
    def failures(self) -> list[Json]:
        return self.converted.failures.to_dicts()

    def results(self) -> list[Json]:
        return [result for step in self.steps for result in json.loads(step["tool_results"] or "[]")]

    def messages(self) -> Iterator[Json]:
        for step in self.steps:
            for text in (step["state"], f"[{step['action']}]", step["next_state"] or "[]"):
                yield from json.loads(text)

    def parts(self, kind: str) -> list[Json]:
        return [part for message in self.messages() for part in message["parts"] if part.get("type") == kind]

    def actions(self) -> str:
        return " ".join(step["action"] for step in self.steps).lower()

    def agent_steps(self) -> list[Json]:
        """Steps of the conversation that the last step ends."""
        begins = [json.loads(step["state"])[:1] for step in self.steps]
        return [step for step, begin in zip(self.steps, begins, strict=True) if begin == begins[-1]]


_Check = Callable[[Report, re.Match[str]], bool]


class Claim(NamedTuple):
    """A phrase and its check."""

    pattern: re.Pattern[str]
    holds: _Check


CLAIMS: Final[list[Claim]] = []
ALTERNATIVE: Final = re.compile(r",? or ((?:(?!\. |[;)]|\.$).)*\)?)")
"""From the word to the end of the clause."""


def claim(pattern: str) -> Callable[[Callable[[Report], bool]], Callable[[Report], bool]]:
    """Register a check that needs nothing but the report."""

    def register(holds: Callable[[Report], bool]) -> Callable[[Report], bool]:
        claim_about(pattern)(lambda report, _match: holds(report))
        return holds

    return register


def claim_about(pattern: str) -> Callable[[_Check], _Check]:
    """Register a check of what the phrase names."""

    def register(holds: _Check) -> _Check:
        CLAIMS.append(Claim(re.compile(pattern), holds))
        return holds

    return register


def outcomes(report: Report) -> dict[str, bool]:
    """Phrase → whether it holds, for the alternative of which most does."""
    alternatives: list[dict[str, bool]] = []
    for text in _alternatives(report.expected):
        matches = [(claim, match) for claim in CLAIMS for match in claim.pattern.finditer(text)]
        alternatives.append(
            {f"{match[0]} ({claim.pattern.pattern})": claim.holds(report, match) for claim, match in matches}
        )
    return max(
        filter(None, alternatives), key=lambda claims: (all(claims.values()), len(claims)), default=dict[str, bool]()
    )


def _alternatives(text: str) -> Iterator[str]:
    """The text with each side of its first "or"; the left one goes back to the beginning of the clause."""
    match = ALTERNATIVE.search(text)
    if match is None:
        yield text
        return
    before, rest = text[: match.start()], text[match.end() :]
    begin = max(before.rfind(". "), before.rfind("; "), before.rfind(": "), -2) + 2
    yield before + rest
    yield before[:begin] + match[1] + rest


def count(word: str) -> int:
    return NUMBERS.get(word) or int(word)


def quoted(text: str) -> list[str]:
    return re.findall(r"'([^']+)'", text)


def is_ordered(texts: Sequence[str], values: Sequence[str]) -> bool:
    """Whether ``values`` stand in ``texts`` in their order."""
    places = [next((place for place, text in enumerate(texts) if value in text.lower()), -1) for value in values]
    return -1 not in places and places == sorted(places)


# --- episodes and steps


@claim_about(rf"\b{NUMBER} (?:scored )?episodes?\b")
def episodes(report: Report, match: re.Match[str]) -> bool:
    return report.converted.episodes.height == count(match[1])


@claim_about(rf"(?<!agent's )\b{NUMBER} steps?\b(?! of the agent)(?! stay)")
def steps(report: Report, match: re.Match[str]) -> bool:
    return bool(report.longest_episode["step_count"] == count(match[1]))


@claim_about(rf"agent's {NUMBER} steps|\b{NUMBER} steps? of the agent")
def steps_of_the_agent(report: Report, match: re.Match[str]) -> bool:
    return len(report.agent_steps()) == count(match[1] or match[2])


@claim(r"stay trainable")
def agent_is_trainable(report: Report) -> bool:
    return all(step["is_trainable"] for step in report.agent_steps())


@claim(r"answer is the last step|is not its last step")
def answer_is_last(report: Report) -> bool:
    first = report.steps[0]
    return report.agent_steps()[0] is first and report.steps[-1]["agent_name"] == first["agent_name"]


@claim(r"agent of the episode|agent and result right")
def agent(report: Report) -> bool:
    return bool(report.longest_episode["agent_name"]) and (
        report.longest_episode["agent_name"] == report.steps[0]["agent_name"]
    )


@claim_about(r"duration of the episode about (\d+) s")
def duration(report: Report, match: re.Match[str]) -> bool:
    return bool(abs(report.longest_episode["duration_ns"] / 1e9 - int(match[1])) < 1)


@claim(r"step 1 goes on|whole history")
def continuation(report: Report) -> bool:
    return report.steps[0]["next_state"] not in {"", "[]"} and json.loads(report.steps[-1]["state"])[0]["role"] in {
        *("system", "user"),
    }


@claim(r"over both traces|span of trace 2")
def both_traces(report: Report) -> bool:
    spans = dict(report.delivered.spans.select("SpanId", "TraceId").rows())
    traces = [step["trace_id"] for step in report.steps]
    return len(set(traces)) == 2 and [spans[result["span_id"]] for result in report.results()] == traces[1:]


@claim(r"nothing lost|fine\.|\bstored and converted")
def nothing_lost(report: Report) -> bool:
    return set(report.converted.rejected["reason"]) <= {"context"} and all(s["is_trainable"] for s in report.steps)


@claim(r"list of messages;|state is a list of messages|fine\.")
def states_are_lists(report: Report) -> bool:
    return all(message["role"] in {"system", "user", "assistant", "tool"} for message in report.messages())


@claim_about(r"exports work|export '([^']*)'")
def exports(report: Report, match: re.Match[str]) -> bool:
    transitions = with_state_texts(report.converted.transitions, report.converted.messages)
    rows = exported_transitions(report.converted._replace(transitions=transitions))
    rows = rows.with_columns(reward=1.0, outcome=pl.lit("success"))
    made = {kind: KINDS[kind].make(rows, ExportOptions()) for kind in ("openai", "preferences")}
    texts = [text for text in made["openai"].rows if isinstance(text, str)]
    is_taken = made["openai"].accepted == rows.height
    return is_taken and (match[1] is None or f'"arguments":"{match[1]}"' in "".join(texts))


# --- endings and failures


@claim(r"no failure|no row in failures|took it")
def no_failure(report: Report) -> bool:
    return not report.failures and report.longest_episode["error_class"] == ""


@claim_about(
    r"does not decide|at most a recovered|without error_class|noted beside|is recovered|\b\w+ recovered\b|, recovered"
)
def decided_by_nothing(report: Report, match: re.Match[str]) -> bool:
    is_over = all(failure["is_recovered"] for failure in report.failures)
    is_noted = bool(report.failures) or "without" in match[0]
    episode = report.longest_episode
    return is_over and is_noted and (episode["error_class"], episode["outcome"]) == ("", "unknown")


@claim_about(r"outcome (\w+)")
def outcome(report: Report, match: re.Match[str]) -> bool:
    return bool(report.longest_episode["outcome"] == match[1])


@claim(r"\bwait(?:s|ing)\b|is_truncated")
def waits(report: Report) -> bool:
    return report.longest_episode["is_truncated"] and not report.longest_episode["is_terminated"]


@claim(r"is_terminated|keeps its whole answer")
def is_terminated(report: Report) -> bool:
    return report.longest_episode["is_terminated"] and not report.longest_episode["is_truncated"]


@claim(r"stopped after a tool call is visible")
def stop_is_visible(report: Report) -> bool:
    return report.steps[-1]["finish_reason"] == "tool_call" and not report.steps[-1]["next_state"]


@claim_about(r"finish reason (\w+)")
def finish_reason(report: Report, match: re.Match[str]) -> bool:
    return bool(report.steps[-1]["finish_reason"] == match[1])


@claim_about(r"(?<!not )\b(truncated_output|wrong_answer|rate_limit|server_error)\b")
def error_class(report: Report, match: re.Match[str]) -> bool:
    return match[1] in {failure["error_class"] for failure in report.failures}


@claim_about(rf"\b([a-z]+_[a-z]+)(?:/|, )({'|'.join(FaultOwner)})\b")
def class_and_owner(report: Report, match: re.Match[str]) -> bool:
    return (match[1], match[2]) in {(row["error_class"], row["fault_owner"]) for row in report.failures}


@claim(r"names the agent's answer")
def names_the_answer(report: Report) -> bool:
    return [row["span_id"] for row in report.failures] == [report.agent_steps()[-1]["span_id"]]


@claim_about(r"root cause is .*?([a-z]+_[a-z]+)")
def root_cause(report: Report, match: re.Match[str]) -> bool:
    failed = report.delivered.convert(reward=0.0)
    return set(failed.episodes["error_class"]) == {match[1]}


@claim(r"no tool is broken")
def no_tool_is_broken(report: Report) -> bool:
    return {row["fault_owner"] for row in report.failures} <= {"policy"}


@claim_about(r"tool errors?\b(?!_)(?: (\d{3}))?|is an error \((\d{3})|counts as a tool error|\btitle's (\d{3})")
def tool_error(report: Report, match: re.Match[str]) -> bool:
    code = next(filter(None, match.groups()), "")
    is_of_tool = "title" in match[0] or report.longest_episode["tool_error_count"] == 1
    return is_of_tool and len(report.failures) == 1 and code in report.failures[0]["message"]


@claim_about(r"tool_error_count (\d)")
def tool_error_count(report: Report, match: re.Match[str]) -> bool:
    return bool(report.longest_episode["tool_error_count"] == int(match[1]))


@claim_about(r"message is '([^']+)'")
def failure_message(report: Report, match: re.Match[str]) -> bool:
    return len(report.failures) == 1 and match[1] in report.failures[0]["message"].lower()


@claim(r"score joined|\bscored\b")
def scored(report: Report) -> bool:
    return (
        report.converted.episodes["reward"].null_count() == 0
        and report.converted.rejected.filter(pl.col("reason").str.contains("score")).is_empty()
    )


@claim(r"failed attempt is no action")
def failed_attempt(report: Report) -> bool:
    return [step["untrainable_reason"] for step in report.steps] == ["request_failed", ""]


# --- content


@claim(r"\buntrainable\b(?! with)|read as model calls")
def untrainable(report: Report) -> bool:
    reasons = [step["untrainable_reason"] for step in report.steps]
    return any(reasons) and set(reasons) <= {"", *UNREADABLE}


@claim_about(r"\b(malformed_messages|missing_content)\b(?: on step (\d))?")
def reason(report: Report, match: re.Match[str]) -> bool:
    named = report.steps if match[2] is None else [report.steps[int(match[2])]]
    return all(step["untrainable_reason"] == match[1] for step in named)


@claim_about(r"([\w.]+\.\w+) cut .*attribute named|with the attribute|attribute named|with the reason")
def attribute_is_named(report: Report, match: re.Match[str]) -> bool:
    details = [step["untrainable_detail"] for step in report.steps]
    return all("attribute " in detail and (match[1] or "").lower() in detail.lower() for detail in details)


@claim(r"^(?:content )?read\b(?! as)|counts?\.$")
def content_is_read(report: Report) -> bool:
    is_whole = all(step["is_trainable"] and json.loads(step["action"])["parts"] for step in report.steps)
    return is_whole and all(isinstance(part["arguments"], dict) for part in report.parts("tool_call"))


@claim(r"fragment kept")
def fragment_is_kept(report: Report) -> bool:
    return any(isinstance(part["arguments"], str) and part["arguments"] for part in report.parts("tool_call"))


@claim(r"thoughts are reasoning")
def reasoning(report: Report) -> bool:
    return bool(report.parts("reasoning"))


@claim_about(r"\b(\w+(?:_use|_call)) (?:and|is part)")
def part_is_kept(report: Report, match: re.Match[str]) -> bool:
    return f'"type":"{match[1]}"' in report.actions()


# --- calls and results


@claim_about(rf"\b{NUMBER} calls?\b|holds the hosted call")
def calls(report: Report, match: re.Match[str]) -> bool:
    return bool(report.longest_episode["tool_call_count"] == (count(match[1]) if match[1] else 1))


@claim(r"results?\b|result is read|call, ok")
def each_call_has_a_result(report: Report) -> bool:
    return len(report.results()) == report.longest_episode["tool_call_count"] and all(
        result["content"] or result["status"] == "error" for result in report.results()
    )


@claim_about(rf"\b{NUMBER} results\b")
def results(report: Report, match: re.Match[str]) -> bool:
    return len(report.results()) == count(match[1])


@claim(r"results? right|right results?|, ok|status ok|took it")
def results_are_ok(report: Report) -> bool:
    return {result["status"] for result in report.results()} == {"ok"}


@claim(r"in order\b|order of the calls")
def results_are_in_order(report: Report) -> bool:
    shown = [response["response"] for response in _newest_responses(report.steps[-1])]
    contents = [result["content"] for result in report.results()]
    values = quoted(report.expected.partition(" in the order")[0])
    return contents == shown and is_ordered(contents, values)


def _newest_responses(step: Json) -> list[Json]:
    parts = (part for message in json.loads(step["state"]) for part in message["parts"])
    return [part for part in parts if part.get("type") == "tool_call_response"]


@claim_about(r"content '([^']+)'")
def result_content(report: Report, match: re.Match[str]) -> bool:
    return match[1] in [result["content"].lower() for result in report.results()]


@claim(r"its (?:own )?span|another call")
def each_result_has_its_span(report: Report) -> bool:
    span_ids = [result["span_id"] for result in report.results()]
    return all(span_ids) and len(set(span_ids)) == len(span_ids)


@claim_about(r"\w+ (?:ok|error|timeout)\b[^,]*(?:, \w+ (?:ok|error|timeout)\b[^,;]*)+")
def statuses(report: Report, match: re.Match[str]) -> bool:
    named = re.findall(r"(\w+) (ok|error|timeout)\b", match[0])
    arguments = [json.dumps(part["arguments"]).lower() for part in report.parts("tool_call")]
    status = ["ok" if word == "ok" else "error" for _, word in named]
    timeouts = [failure for failure in report.failures if failure["error_class"] == "timeout"]
    is_in_order = is_ordered(arguments, [name for name, _ in named])
    return (
        is_in_order
        and [result["status"] for result in report.results()] == status
        and len(timeouts) == sum(word == "timeout" for _, word in named)
    )


@claim(r"from the history")
def result_from_history(report: Report) -> bool:
    return "" in {result["span_id"] for result in report.results()}


@claim(r"call without arguments")
def no_arguments(report: Report) -> bool:
    return all(not part["arguments"] or part["arguments"] == "{}" for part in report.parts("tool_call"))


@claim(r"^duration 0")
def durations(report: Report) -> bool:
    return {result["duration_ns"] for result in report.results()} == {0}
