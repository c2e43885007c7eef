"""``spanloop scores``: add, correct, list and delete."""

import pytest

from .support import Run

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.slow
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


def test_what_is_no_score_is_said(spanloop_on_store: Run) -> None:
    completed = spanloop_on_store("scores", "add", "nan", "--session", "s")
    assert completed.returncode == 2
    assert "value" in completed.stderr
    assert "expected one of trace_id" in spanloop_on_store("scores", "add", "1").stderr
    assert "There is no score x" in spanloop_on_store("scores", "delete", "x").stderr
