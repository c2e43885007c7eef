"""Recordings of many programs in one store give the episodes that each gives alone, even where their ids collide."""

import json
from collections.abc import Iterable
from datetime import timedelta
from functools import cache

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from spanloop.converters import Converted

from . import converters_recordings as recordings
from .recording_copies import Recorded, ids_of, names, rows_of, together
from .test_recordings import convert_recording

Episodes = set[tuple[str, ...]]
"""The trace ids of each episode."""


@cache
def original(name: str) -> tuple[Recorded, Converted]:
    recording, converted = convert_recording(name)
    return rows_of(recording), converted


@cache
def colliding(name: str) -> tuple[Recorded, Converted]:
    """The recording with its ids replaced by ``id_0001``, ``id_0002`` and so on."""
    text = json.dumps(recordings.load(name))
    counted = {identity: f"id_{number:04d}" for number, identity in enumerate(ids_of(*original(name)), start=1)}
    for identity in sorted(counted, key=len, reverse=True):
        text = text.replace(identity, counted[identity])
    rows = rows_of(json.loads(text))
    return rows, rows.convert()


def episodes(converted: Converted) -> Episodes:
    return {tuple(sorted(traces)) for traces in converted.episodes["trace_ids"].to_list()}


def of_each(converted: Iterable[Converted]) -> Episodes:
    return {traces for found in converted for traces in episodes(found)}


def test_recordings_in_one_store_are_the_episodes_of_each_alone() -> None:
    rows, alone = zip(*map(original, names()), strict=True)
    assert episodes(together(rows).convert()) == of_each(alone)


@pytest.mark.slow
@pytest.mark.parametrize("differ", ["service", "time"])
def test_ids_that_collide_join_no_two_programs(differ: str) -> None:
    rows, alone = zip(*map(colliding, names()), strict=True)
    apart = (
        each.of_service(f"program {number}") if differ == "service" else each.later(timedelta(hours=number))
        for number, each in enumerate(rows)
    )
    assert episodes(together(apart).convert()) == of_each(alone)


def test_a_bare_loop_is_one_episode_whatever_its_ids_are() -> None:
    loops = [name for name in names() if "loop" in name]
    assert loops
    for name in loops:
        assert episodes(colliding(name)[1]) == episodes(original(name)[1]), name


@pytest.mark.slow
def test_recordings_without_scopes_give_the_same_rows() -> None:
    """The SDK's ``to_json`` leaves scopes out."""
    for name in names():
        rows, expected = original(name)
        bare = rows._replace(spans=rows.spans.with_columns(ScopeName=pl.lit("")))
        converted = bare.convert()
        for table in ("episodes", "transitions", "trajectories", "failures"):
            assert_frame_equal(getattr(converted, table), getattr(expected, table))
