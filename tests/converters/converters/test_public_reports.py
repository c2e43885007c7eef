"""Inputs written after public bug reports: what the text beside each expects, as far as it is read here.

A case whose text says that it was wrong may still fail; one that was right may not.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from spanloop.converters import Converted
from spanloop.converters.tokens.message_numbers import with_state_texts

from . import otlp_json

NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4}
NUMBER = r"(\d+|one|two|three|four)"


class Report(NamedTuple):
    """An input and the text beside it."""

    expected: str
    verdict: str
    converted: Converted


def names() -> list[str]:
    return sorted(path.stem for path in otlp_json.PUBLIC_REPORTS.glob("*.json"))


@cache
def report(name: str) -> Report:
    text = Path(otlp_json.PUBLIC_REPORTS / f"{name}.expected.md").read_text()
    expected = text.partition("expects\n")[2].partition("\n## ")[0].strip().lower()
    verdict = text.partition("Verdict:")[2].strip().lower()
    return Report(expected, verdict, otlp_json.read(otlp_json.PUBLIC_REPORTS / f"{name}.json").convert())


def counted(pattern: str, text: str) -> Iterator[int]:
    for match in re.finditer(rf"\b{NUMBER} {pattern}", text):
        yield NUMBERS.get(match[1]) or int(match[1])


def episodes(found: Report) -> Iterator[bool]:
    """``one episode of 4 steps``; what follows an "or" is as good."""
    first = found.expected.partition(", or ")[0]
    for count in counted(r"(?:scored )?episodes?\b", first):
        yield found.converted.episodes.height == count


def steps(found: Report) -> Iterator[bool]:
    """``2 steps``; the longest episode has them."""
    first = found.expected.partition(", or ")[0]
    for count in counted(r"steps?\b", first):
        yield found.converted.episodes["step_count"].max() == count


def last_step(found: Report) -> Iterator[bool]:
    """``the parent's answer is the last step``: whoever began ends."""
    if "is the last step" in found.expected:
        agents = found.converted.transitions.sort("step")["agent_name"]
        yield agents[0] == agents[-1]


def duration(found: Report) -> Iterator[bool]:
    """``the duration of the episode about 6 s``."""
    for match in re.finditer(r"duration[^.]* about (\d+) s", found.expected):
        yield abs(found.converted.episodes["duration_ns"].item() / 1e9 - int(match[1])) < 1


def continuation(found: Report) -> Iterator[bool]:
    """``step 1 goes on from it``: the step's successor is known, with what it was sent."""
    if "step 1 goes on" in found.expected:
        transitions = with_state_texts(found.converted.transitions, found.converted.messages)
        yield transitions.sort("step")["next_state"][0] not in {"", "[]"}


CHECKS: tuple[Callable[[Report], Iterator[bool]], ...] = (episodes, steps, last_step, duration, continuation)


@pytest.mark.parametrize("name", names() or [pytest.param("", marks=pytest.mark.skip("the reports are absent"))])
def test_a_report_comes_out_as_its_reader_expects(name: str) -> None:
    found = report(name)
    outcomes = {check.__name__: all(results) for check in CHECKS if (results := list(check(found)))}
    if not outcomes:
        pytest.skip("nothing of what the text expects is read here")
    wrong = [check for check, is_met in outcomes.items() if not is_met]
    if wrong and found.verdict.startswith("wrong"):
        pytest.xfail(f"wrong as before: {', '.join(wrong)}")
    assert not wrong
