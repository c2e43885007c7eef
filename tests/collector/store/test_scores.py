"""Scores: what one is for must be clear, and the last write of a key wins."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from spanloop.foundation.errors import ConfigurationError
from spanloop.store import Store
from spanloop.store.scores import Score, add_scores, delete_scores

TRACE = "4BF92F3577B34DA6A3CE929D0E0E4736"


def listed(store: Store, **of: str) -> list[dict[str, object]]:
    filters = {"trace_id": "", "response_id": "", "session_id": "", "episode_id": ""} | of
    scores = store.query("scores_list", limit=100, **filters)
    if not of:  # here all that was ever written is a candidate
        assert store.query("scores_newest", limit=100).equals(scores)
    return scores.to_dicts()


def test_the_last_write_of_a_key_wins_and_a_retry_changes_nothing(store: Store) -> None:
    first = Score(id="k", value=0.5, session_id="s", comment="hm")
    for score in (first, first, Score(id="k", value=1, session_id="s", comment="better")):
        assert add_scores(store, [score]) == ["k"]
    (scores,) = listed(store)
    assert (scores["value"], scores["comment"], scores["source"], scores["name"]) == (1.0, "better", "api", "reward")


def test_the_default_key_is_derived_from_target_name_and_source(store: Store) -> None:
    first = add_scores(store, [Score(value=0, response_id="r"), Score(value=1, response_id="r", name="style")])
    again = add_scores(store, [Score(value=1, response_id="r", comment="after all")])
    other = add_scores(store, [Score(value=0, response_id="r", source="judge")])
    assert again[0] == first[0]
    assert len({*first, *again, *other}) == 3
    assert len(listed(store, response_id="r")) == 3


def test_a_mark_has_a_label_and_a_key_of_its_own(store: Store) -> None:
    marks = [Score(name="spanloop.mark", label=label, value=1, session_id="s") for label in ("good", "odd")]
    assert len(set(add_scores(store, marks))) == 2
    with pytest.raises(ValidationError, match="a mark needs a label"):
        Score(name="spanloop.mark", value=1, session_id="s")


def test_the_last_score_of_a_request_counts(store: Store) -> None:
    add_scores(store, [Score(id="k", value=value, session_id="s") for value in (0, 0.25, 0.75)])
    assert [row["value"] for row in listed(store)] == [0.75]


def test_deleted_scores_are_gone_until_they_are_written_again(store: Store) -> None:
    (key,) = add_scores(store, [Score(value=1, trace_id=TRACE)])
    delete_scores(store, [key])
    assert listed(store) == []
    row = store.query("pipeline_scores", trace_ids=[TRACE.lower()], response_ids=[], episode_keys=[], session_ids=[])
    assert row["is_deleted"].to_list() == [1]  # the pipeline sees which episode lost it
    add_scores(store, [Score(value=0.5, trace_id=TRACE)])
    assert [row["value"] for row in listed(store, trace_id=TRACE.lower())] == [0.5]


def test_an_unknown_key_deletes_nothing(store: Store) -> None:
    (key,) = add_scores(store, [Score(value=1, session_id="s")])
    with pytest.raises(ConfigurationError, match="There is no score nonsense"):
        delete_scores(store, [key, "nonsense"])
    assert len(listed(store)) == 1


def test_an_episode_is_named_as_the_pages_name_it(store: Store) -> None:
    add_scores(store, [Score(value=1, episode_id=TRACE.lower()), Score(value=0, episode_id="my-run-1")])
    assert [row["trace_id"] for row in listed(store, episode_id=TRACE.lower())] == [TRACE.lower()]
    assert [row["trace_id"] for row in listed(store, episode_id="my-run-1")] == [""]


def test_ids_times_and_truths_are_read() -> None:
    score = Score.model_validate({"value": True, "trace_id": TRACE, "timestamp": "2026-01-02T03:04:05+01:00"})
    assert (score.number, score.trace_id) == (1.0, TRACE.lower())
    moment = datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC)
    assert score.timestamp == moment
    assert score.timestamp_ns() == int(moment.timestamp()) * 10**9


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"value": 1}, "expected one of trace_id, response_id, session_id, episode_id"),
        ({"session_id": "s"}, "value is missing"),
        ({"value": float("nan"), "session_id": "s"}, "finite"),
        ({"value": 1e308, "session_id": "s"}, "got 1e+308, expected a finite number between -1e12 and 1e12"),
        ({"value": -3e38, "session_id": "s"}, "got -3e+38, expected a finite number between -1e12 and 1e12"),
        ({"value": "1", "session_id": "s"}, "valid number"),
        ({"value": 1, "trace_id": "12"}, "match pattern"),
        ({"value": 1, "trace_id": "0" * 32}, "not be all zero"),
        ({"value": 1, "span_id": "1" * 16, "session_id": "s"}, "expected trace_id too"),
        ({"value": 1, "session_id": "s", "timestamp": "2200-01-01"}, "between 1970 and 2106"),
        ({"value": 1, "session_id": "s", "timestamp": "soon"}, "valid datetime"),
        ({"value": 1, "session_id": "s", "colour": "red"}, "Extra inputs"),
        ({"value": 1, "session_id": "s", "name": ""}, "at least 1 character"),
        ({"value": 1, "session_id": "half \ud800"}, "unicode"),
    ],
)
def test_an_invalid_score_is_an_error_with_the_reason(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        Score.model_validate(fields)


def test_the_newest_scores_are_current_ones(store: Store) -> None:
    """However many of the newest rows have been replaced: then fewer are listed, and never one that should not be."""
    at = datetime(2025, 3, 1, tzinfo=UTC)
    scores = [
        Score(id=f"k{number}", value=1, session_id="s", timestamp=at + timedelta(seconds=number))
        for number in range(400)
    ]
    add_scores(store, scores[:200])
    add_scores(store, scores[200:])
    newest = listed_newest(store, 5)
    assert newest == [f"k{number}" for number in range(399, 394, -1)]
    corrected = scores[10].model_copy(update={"timestamp": at + timedelta(days=1)})
    moved = scores[399].model_copy(update={"timestamp": at - timedelta(days=1)})
    add_scores(store, [corrected, moved])
    delete_scores(store, ["k398"])
    assert listed_newest(store, 5) == ["k10", "k397", "k396", "k395", "k394"]
    delete_scores(store, [f"k{number}" for number in range(100, 398)])
    keys = [row["score_id"] for row in listed_all(store)]
    assert keys[:3] == ["k10", "k99", "k98"]
    assert (newest := listed_newest(store, 5)) == keys[: len(newest)]


def listed_newest(store: Store, limit: int) -> list[str]:
    return store.query("scores_newest", limit=limit)["score_id"].to_list()


def listed_all(store: Store) -> list[dict[str, object]]:
    everything = {"trace_id": "", "response_id": "", "session_id": "", "episode_id": ""}
    return store.query("scores_list", limit=1_000, **everything).to_dicts()
