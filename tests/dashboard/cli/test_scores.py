"""``spanloop scores``: add, correct, list and delete."""

import pytest

from spanloop.store import Store
from spanloop.store.client import Connection

from ...converters.converters.converters_world import OPENING, text, trace_id
from ...converters.converters.pipeline_feed import Feed
from .support import Run

TRACE = trace_id("a")
NAMED = {"session.id": "s1", "gen_ai.conversation.id": "c1", "spanloop.episode.id": "my-run:lock:1"}


@pytest.fixture
def call_span(store: Store, connection: Connection) -> str:
    """The id of a stored model call of a session, a conversation and an episode with names of the app."""
    feed = Feed(store, connection)
    call = feed.world.call(OPENING, text("assistant", "x"), trace=TRACE, attributes=NAMED)
    feed.world.capture([1], [2], response_id="captured-1")
    feed.send()
    return call


@pytest.mark.slow
@pytest.mark.usefixtures("call_span")
def test_a_score_is_given_corrected_and_taken_back(spanloop_on_store: Run) -> None:
    key = spanloop_on_store("scores", "add", "0.5", "--trace", TRACE, "--comment", "[hm]").stdout.strip()
    assert spanloop_on_store("scores", "add", "1", "--trace", TRACE, "--comment", "[ok]").stdout.strip() == key
    listed = spanloop_on_store("scores", "list", "--trace", TRACE).stdout.splitlines()
    assert len(listed) == 2
    assert listed[1].split()[:4] == [key, "reward", "1", "person"]
    assert f"trace {TRACE}" in listed[1]
    assert listed[1].rstrip().endswith("[ok]")
    assert spanloop_on_store("scores", "delete", key).returncode == 0
    assert spanloop_on_store("scores", "list").stderr.strip() == "no scores"


def test_scores_are_of_what_is_stored(spanloop_on_store: Run, call_span: str) -> None:
    for target in (
        ("--trace", TRACE.upper(), "--span", call_span),
        ("--response", "chatcmpl-1"),
        ("--response", "captured-1"),
        ("--session", "s1"),
        ("--session", "c1"),
        ("--episode", TRACE),
        ("--episode", "my-run:lock:1"),
    ):
        completed = spanloop_on_store("scores", "add", "1", *target)
        assert completed.returncode == 0, completed.stderr
    assert "episode my-run:lock:1" in spanloop_on_store("scores", "list", "--episode", "my-run:lock:1").stdout
    for target, named in (
        (("--trace", f"{1:032x}"), f"trace '{1:032x}'"),
        (("--trace", TRACE, "--span", f"{9:016x}"), f"span '{9:016x}'"),
        (("--response", "chatcmpl"), "response 'chatcmpl'"),
        (("--session", "my-run:lock:1"), "session 'my-run:lock:1'"),
        (("--episode", TRACE[:16]), f"episode '{TRACE[:16]}'"),
        (("--episode", "x", "--session", "y"), "session 'y' and no episode 'x'"),
    ):
        completed = spanloop_on_store("scores", "add", "1", *target)
        assert completed.returncode == 2
        assert f"The store has no {named}, so" in completed.stderr
        assert "try again" in completed.stderr


def test_what_is_no_score_is_said(spanloop_on_store: Run) -> None:
    completed = spanloop_on_store("scores", "add", "nan", "--session", "s")
    assert completed.returncode == 2
    assert "value" in completed.stderr
    assert "expected one of trace_id" in spanloop_on_store("scores", "add", "1").stderr
    assert "There is no score x" in spanloop_on_store("scores", "delete", "x").stderr
