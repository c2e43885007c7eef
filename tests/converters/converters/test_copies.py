"""Parallel copies of a program's run with ids of their own are as many times its episodes, at any distance in time."""

import json
from datetime import timedelta
from random import Random

import pytest

from spanloop.converters import Converted

from .recording_copies import SHORTEST_ID, copy_of, ids_of, names, rows_of, together
from .test_recordings import convert_recording

COPIES = 3


def are_linked_by_ids(converted: Converted) -> bool:
    """Whether an episode lies within one trace, or all is recorded, and tool calls and their answers have ids."""
    if all(len(traces) == 1 for traces in converted.episodes["trace_ids"].to_list()):
        return True
    if "missing_content" in converted.transitions["untrainable_reason"].to_list():
        return False
    rows = converted.transitions.select("state", "action").rows()
    messages = [message for state, action in rows for message in (*json.loads(state), json.loads(action))]
    parts = [part for message in messages for part in message["parts"]]
    ids = [part.get("id") or "" for part in parts if part.get("type") in {"tool_call", "tool_call_response"}]
    return bool(ids) and all(len(identity) >= SHORTEST_ID for identity in ids)


def insist_on_copies(name: str, apart: list[timedelta], seed: int) -> None:
    recording, alone = convert_recording(name)
    ids = sorted(ids_of(rows_of(recording), alone), key=lambda identity: (-len(identity), identity))
    copies = [copy_of(recording, ids, seed + number).later(by) for number, by in enumerate(apart)]
    episodes = together(copies).convert().episodes.height
    expected = len(apart) * alone.episodes.height
    assert episodes >= expected
    if are_linked_by_ids(alone):
        assert episodes == expected


@pytest.mark.parametrize("name", names())
def test_parallel_copies_are_episodes_of_their_own(name: str) -> None:
    random = Random(name)
    apart = [timedelta(milliseconds=random.choice([0, 1, random.randrange(500)])) for _ in range(COPIES)]
    insist_on_copies(name, apart, seed=random.randrange(1_000))


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("longest", [0, 3, 50, 2_000, 60_000, 7_200_000])
def test_copies_at_any_distance_are_episodes_of_their_own(name: str, longest: int) -> None:
    random = Random(f"{name} {longest}")
    apart = [timedelta(milliseconds=random.randint(0, longest)) for _ in range(2 * COPIES)]
    insist_on_copies(name, apart, seed=random.randrange(1_000))
