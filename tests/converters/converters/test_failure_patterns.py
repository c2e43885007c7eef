"""The table of words by which failures are told."""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from time import process_time
from typing import Any, cast

import pytest

from spanloop.converters.attribution import ErrorClass
from spanloop.converters.errors.error_texts import LITERALS, AnswerErrors, error_in_text
from spanloop.converters.errors.failure_patterns import (
    MOST_TEXT,
    FailurePattern,
    all_patterns,
    failure_pattern,
    failure_patterns,
)
from spanloop.converters.errors.pattern_literals import CASE_VARIANTS, required_literals
from spanloop.messages import parse_json_or_none

from .converters_recordings import OWN

PATTERNS = all_patterns()
TEXT_STARTS = failure_patterns("tool_error")
"""Asked about the start of a text only."""
CHUNKS = (
    "a",
    "a ",
    "a_",
    "a.",
    "A.",
    "the ",
    "error ",
    "Error",
    "http ",
    "(",
    "1",
    "\n",
    "'a",
    "is not ",
    "no a ",
    "i am ",
)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_a_pattern_matches_examples_of_two_products_and_says_what_it_shows(pattern: FailurePattern) -> None:
    assert len({product for product, _ in pattern.examples}) >= 2
    assert all(pattern.search(text) for _, text in pattern.examples)
    assert pattern.error_class in set(ErrorClass)
    assert 0 < pattern.confidence <= 1


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_no_text_keeps_a_pattern_busy(pattern: FailurePattern) -> None:
    for chunk in CHUNKS:
        for text in (
            chunk * (MOST_TEXT // len(chunk)),
            pattern.examples[0][1][:-1] + chunk * (MOST_TEXT // len(chunk)),
        ):
            start = process_time()
            pattern.match(text) if pattern in TEXT_STARTS else pattern.search(text)
            assert process_time() - start < 0.5, (chunk, text[:40])


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_no_unbounded_repeat_stands_within_another(pattern: FailurePattern) -> None:
    # A repeated word with a dot behind it is unambiguous: each dot ends one round.
    regex = re.sub(r"\(\?:\\w\+\\\.\)", "", pattern.regex.pattern)
    assert not re.search(r"(?<!\\)[*+]\)(?:[*+]|\{\d+,\})", regex)


def test_the_table_stays_small() -> None:
    assert len(PATTERNS) <= 48
    assert sum(len(pattern.regex.pattern) for pattern in PATTERNS) <= 23_312


def test_a_pattern_reads_the_beginning_of_a_long_text() -> None:
    pattern = failure_pattern("missing")
    assert pattern.search("x" * (MOST_TEXT - 20) + " not found")
    assert not pattern.search("x" * MOST_TEXT + " not found")


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_long_answer_without_an_error_is_read_at_once(chunk: str) -> None:
    start = process_time()
    assert error_in_text("Nice: " + chunk * 100_000) is None
    assert process_time() - start < 0.2


def texts_of(value: Any) -> Iterator[str]:
    """All texts within a JSON value, and within JSON that a text holds."""
    if isinstance(value, dict):
        for inner in cast("dict[str, Any]", value).values():
            yield from texts_of(inner)
    elif isinstance(value, list):
        for inner in value:  # pyright: ignore[reportUnknownVariableType]
            yield from texts_of(inner)
    elif isinstance(value, str):
        yield value
        if value[:1] in {"{", "["} and (inner := parse_json_or_none(value)) is not None:
            yield from texts_of(inner)


def test_literals_hide_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = (json.loads(path.read_text()) for path in sorted(OWN.glob("*.json")))
    texts = dict.fromkeys(
        [*(text for pattern in PATTERNS for _, text in pattern.examples), *chain.from_iterable(map(texts_of, recorded))]
    )
    errors, one_by_one = AnswerErrors(texts), {text: AnswerErrors()[text] for text in list(texts)[::20]}

    def all_literals(given: Sequence[str]) -> list[frozenset[str]]:
        return [frozenset(LITERALS)] * len(given)

    monkeypatch.setattr("spanloop.converters.errors.error_texts._present_literals", all_literals)
    unfiltered = AnswerErrors(texts)
    assert {text: errors[text] for text in texts} == {text: unfiltered[text] for text in texts}
    assert one_by_one == {text: unfiltered[text] for text in one_by_one}


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_an_example_contains_a_literal_of_its_pattern(pattern: FailurePattern) -> None:
    literals = required_literals(pattern.regex)
    for _, text in pattern.examples:
        assert any(literal in text.lower() for literal in literals)
    assert all(literals)


@pytest.mark.parametrize(
    ("regex", "expected"),
    [
        ("(?:could not|cannot) (?:be )?read", {"could not be read", "could not read", "cannot be read", "cannot read"}),
        (r"time-?out\b(?!s)", {"time-out", "timeout"}),
        (r"\w+ error\s*[:(]", {" error"}),
        ("a(?:bc)+d", {"bc"}),
        ("[xy]z{2,3}", {"z"}),
        ("a.*bcd|e", {"bcd", "e"}),
    ],
)
def test_literals_of_a_pattern(regex: str, expected: set[str]) -> None:
    assert required_literals(re.compile(regex)) - CASE_VARIANTS == expected


def test_a_pattern_without_a_literal_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a literal"):
        required_literals(re.compile(r"\d+|x"))


@cache
def all_characters() -> str:
    return "".join(chr(code) for code in range(sys.maxunicode) if not 0xD800 <= code < 0xE000)


@pytest.mark.parametrize("letter", "isk\u0432\u0434\u043e\u0441\u0442\u044a\u0463")
def test_variants_of_letters_are_literals(letter: str) -> None:
    matches = re.findall(letter, all_characters(), re.IGNORECASE)
    assert len(matches) > 1
    assert all(not CASE_VARIANTS.isdisjoint(char.lower()) or char.lower() == letter for char in matches)
