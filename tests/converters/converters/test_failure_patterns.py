"""The table of words by which failures are told."""

import re
from time import process_time

import pytest

from spanloop.converters.attribution import ErrorClass
from spanloop.converters.error_texts import error_in_text
from spanloop.converters.failure_patterns import (
    MOST_TEXT,
    FailurePattern,
    all_patterns,
    failure_pattern,
    failure_patterns,
)

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
def test_a_pattern_matches_its_example_and_says_what_it_shows(pattern: FailurePattern) -> None:
    assert pattern.search(pattern.example)
    assert pattern.error_class in set(ErrorClass)
    assert 0 < pattern.confidence <= 1


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_no_text_keeps_a_pattern_busy(pattern: FailurePattern) -> None:
    for chunk in CHUNKS:
        for text in (chunk * (MOST_TEXT // len(chunk)), pattern.example[:-1] + chunk * (MOST_TEXT // len(chunk))):
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
    assert sum(len(pattern.regex.pattern) for pattern in PATTERNS) <= 22_758


def test_a_pattern_reads_the_beginning_of_a_long_text() -> None:
    pattern = failure_pattern("missing")
    assert pattern.search("x" * (MOST_TEXT - 20) + " not found")
    assert not pattern.search("x" * MOST_TEXT + " not found")


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_long_answer_without_an_error_is_read_at_once(chunk: str) -> None:
    start = process_time()
    assert error_in_text("Nice: " + chunk * 100_000) is None
    assert process_time() - start < 0.2
