"""Fingerprints: one for the same failure over many episodes, others for others."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .converters_world import OPENING, World, answers, asks, text, trace_id

ROOT = Path(__file__).parents[3]


def group_of(content: str, query: str = "x", name: str = "search") -> str:
    """The fingerprint of a tool that answers ``content``."""
    trace = trace_id(content + query)
    world, said = World(), asks("c1", name, {"query": query})
    world.call(OPENING, said, trace=trace, tools=[])
    world.call([*OPENING, said, answers("c1", content)], text("assistant", "x"), trace=trace, tools=[])
    return str(world.convert().failures.item(0, "fingerprint"))


ALIKE = {
    "numbers": ("Error: row 17 of 200 is locked", "Error: row 9 of 1,312 is locked"),
    "ids": ("Error: order ZX-81 is locked", "Error: order b7f857e4-d8aa-4387-af2a is locked"),
    "paths": ("OSError: cannot open /srv/a/one.db", "OSError: cannot open /data/mia/two-b.db"),
    "addresses": ("Error: no route to https://a.example/x?y=1", "Error: no route to http://b.example/z"),
    "people": ("Error: mia@a.example has no mailbox", "Error: otto.k@b.example has no mailbox"),
    "times": ("Error: locked since 2026-11-20T09:00:00+01:00", "Error: locked since 2027-01-01T10:30:59Z"),
    "quotes": ("Error: table 'fares' is locked", 'Error: table "seats of May" is locked'),
    "lists": ("Error: rows 1, 2 and [3, 4] are locked", "Error: rows 1, 2 and [3] are locked"),
    "length": ("Error: row " + "9" * 500 + " is locked", "Error: row 9 is locked"),
    "frames": (
        'Traceback (most recent call last):\n  File "/a/b.py", line 3, in f\n    x()\nOSError: disk full',
        'Traceback (most recent call last):\n  File "/c.py", line 99, in g\n    y\n  File "d"\nOSError: disk full',
    ),
    "objects": ('{"error": {"message": "disk full"}, "at": 1}', '{"detail": "disk full", "status": "error"}'),
    "wrapping": ("Error: OSError: disk full", "Error executing tool: OSError: disk full"),
}


@pytest.mark.parametrize("what", sorted(ALIKE))
def test_what_differs_from_episode_to_episode_does_not_count(what: str) -> None:
    one, other = ALIKE[what]
    assert group_of(one) == group_of(other)


def test_a_value_of_the_arguments_does_not_count() -> None:
    one = group_of("Error: kumquat is out of season", "kumquat")
    assert one == group_of("Error: plum is out of season", "plum")
    assert one != group_of("Error: plum is out of stock", "plum")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Error: row 17 is locked", "Error: row 17 is gone"),
        ("KeyError: 'fares'", "AttributeError: 'fares'"),
        ("Error: disk full", "Error: connection refused"),
        ('{"error": "no such fare"}', '{"error": "fares are closed"}'),
    ],
)
def test_other_failures_are_other_groups(one: str, other: str) -> None:
    assert group_of(one) != group_of(other)


def test_the_same_words_of_another_tool_are_another_group() -> None:
    assert group_of("Error: disk full") != group_of("Error: disk full", name="write")


def test_injected_faults_are_named_rightly_and_grouped_by_what_they_are() -> None:
    command = [sys.executable, "benchmarks/attribution.py", "--quick", "--airline", "absent", "--annotated", "absent"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300).stdout
    ratios = {name: float(value) for name, value in re.findall(r"(\w+)=([\d.]+)", printed.splitlines()[-1])}
    assert ratios["injected"] >= 0.99
    assert ratios["untouched"] == 1.0
    assert ratios["no_tool_spans_blame"] >= 0.99
    assert ratios["group_purity"] >= 0.99
    assert ratios["group_completeness"] >= 0.95
