"""Runs of commands: what reaches them, how they end, and what is stored."""

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spanloop.evaluation.runner.answers import Output, answer_of_output
from spanloop.evaluation.runner.attempt import EndedAttempt, EndState
from spanloop.evaluation.runner.making import MOST_STARTS
from spanloop.evaluation.runner.run import mark_prefix, run_attempts
from spanloop.evaluation.runner.served_model import Served, ServedModel
from spanloop.evaluation.tasks import Rejected, RejectedReason, TaskReading
from spanloop.foundation.errors import ConfigurationError, StoreError
from spanloop.foundation.processes.marked import VariableMark, find_processes
from spanloop.semconv.environment import PROCESS_MARK_ENV
from spanloop.store import Store

from .support import MODEL, Told, plan_of, rewards, stored_attempts


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    rows = [{"id": "sum", "question": "1+1", "answer": "2"}, {"id": "town", "question": "where?", "answer": "Oslo"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "r1"


Go = Callable[..., Told]


@pytest.fixture
def go(store: Store, folder: Path, source: Path) -> Go:
    """Run an agent on the two tasks; nothing that it started may be left."""

    def ran(agent: str, told: Told | None = None, stop: threading.Event | None = None, **settings: Any) -> Told:
        told = told or Told()
        run_attempts(plan_of(folder, source, agent, **settings), store, told, stop or threading.Event())
        assert find_processes(None, VariableMark(PROCESS_MARK_ENV, mark_prefix(folder))) == []
        return told

    return ran


def test_a_task_reader_that_raises_ends_its_source_and_the_tasks_before_are_run(
    store: Store, folder: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torn_reader.py").write_text(
        "def read(source, **options):\n    yield {'id': 'first', 'q': 1}\n    raise OSError('the wire is cut')\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "torn_reader", raising=False)
    rejected: list[Rejected] = []
    reading = TaskReading("db://x", reader="torn_reader:read", on_reject=rejected.append)
    plan = plan_of(folder, source, "echo 1")._replace(tasks=reading)
    summary = run_attempts(plan, store, Told(), threading.Event())
    assert (summary.attempts, summary.states) == (1, {EndState.FINISHED: 1})
    assert [(each.place, each.reason) for each in rejected] == [("torn_reader:read:2", RejectedReason.READER_FAILED)]
    assert "OSError: the wire is cut; it had read 1 records" in rejected[0].detail


def test_each_attempt_gets_its_task_and_its_ids_and_is_graded_and_stored(go: Go, store: Store, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    script = (
        'read line; echo "$line" > "$2-$3.json"; env > "$2-$3.env"; '
        'echo working; if [ "$1" = 1+1 ]; then echo 2; else echo Bergen; fi; echo'
    )
    told = go(
        f"sh -c '{script}' sh {{question}} {{task_id}} {{attempt}} {{seed}} {{model}}",
        attempts=2,
        grader="exact",
        cwd=place,
    )
    rows = stored_attempts(store)
    assert [(row["task_id"], row["attempt"], row["is_success"], row["reward"]) for row in rows] == [
        ("sum", 1, True, 1.0),
        ("sum", 2, True, 1.0),
        ("town", 1, False, 0.0),
        ("town", 2, False, 0.0),
    ]
    assert {(row["run_id"], row["model"], row["state"], row["exit_code"], row["grader"]) for row in rows} == {
        ("r1", MODEL, "finished", 0, "exact")
    }
    assert json.loads(rows[2]["evidence"]) == {
        "answer": "Bergen",
        "expected": "Oslo",
        "reason": "Grader 'exact' gave 0, a failure.",
    }
    assert json.loads((place / "town-1.json").read_text()) == {"question": "where?", "answer": "Oslo"}
    pairs = (line.partition("=") for line in (place / "sum-2.env").read_text().splitlines())
    environment = {name: value for name, _, value in pairs}
    assert environment["SPANLOOP_TASK_ID"] == "sum"
    assert environment["SPANLOOP_EPISODE_ID"] == rows[1]["episode_id"]
    assert environment["SPANLOOP_SEED"] == str(rows[1]["seed"])
    assert rewards(store) == {
        row["episode_id"]: (row["reward"], "success" if row["is_success"] else "failure", "grader exact 1")
        for row in rows
    }
    assert set(told.by_attempt) == {("sum", 1), ("sum", 2), ("town", 1), ("town", 2)}


@pytest.mark.parametrize(
    ("agent", "state", "exit_code", "error"),
    [
        ("sh -c 'echo 2; echo oh dear >&2; exit 3'", "crashed", 3, "exit status 3\noh dear"),
        ("sh -c 'kill -9 $$'", "crashed", -9, "ended by SIGKILL"),
        ("sh -c 'sleep 600 & sleep 600'", "timed_out", -15, "stopped after 0.4 s"),
        ("/no/such/program", "crashed", None, "cannot be started"),
        ("cat {question}\0", "crashed", None, "null byte"),
    ],
)
def test_an_attempt_that_does_not_finish_is_stored_without_a_verdict(
    *, go: Go, store: Store, agent: str, state: str, exit_code: int | None, error: str
) -> None:
    go(agent, grader="exact", timeout_s=0.4)
    for row in stored_attempts(store):
        assert (row["state"], row["exit_code"], row["is_success"], row["reward"]) == (state, exit_code, None, None)
        assert error in row["error"]
    assert rewards(store) == {}


def test_an_agent_that_prints_much_and_forks_costs_nothing_and_is_graded_by_its_last_line(go: Go, store: Store) -> None:
    script = 'setsid sleep 600 & head -c 20000000 /dev/zero | tr "\\\\0" x; echo; echo 2'
    go(f"sh -c '{script}'", grader="exact", attempts=1)
    first, second = stored_attempts(store)
    assert (first["is_success"], second["is_success"]) == (True, False)
    assert len(second["evidence"]) < 1_000


@pytest.mark.parametrize(
    ("printed", "line", "whole"),
    [
        ("a\n\n  b  \n\n", "b", "a\n\n  b"),
        ('x\n{"answer": {"n": 1}}', '{"n": 1}', 'x\n{"answer": {"n": 1}}'),
        ('{"answer": "two\\nlines"}\n', "two\nlines", '{"answer": "two\\nlines"}'),
        ('{"other": 1}', '{"other": 1}', '{"other": 1}'),
        ("{not json}", "{not json}", "{not json}"),
        ("", "", ""),
    ],
)
def test_an_answer_is_the_last_line_or_the_whole_output(printed: str, line: str, whole: str) -> None:
    assert answer_of_output(printed, Output.LINE) == line
    assert answer_of_output(printed, Output.STDOUT) == whole
    assert answer_of_output(printed, Output.MESSAGE) == ""


def test_a_grader_that_raises_costs_one_verdict_and_the_next_call_grades_without_running(
    go: Go, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "moody.py").write_text(
        "from pathlib import Path\n"
        "def grade(task, answer):\n"
        f"    if task.id == 'sum' and not Path({str(tmp_path / 'mended')!r}).exists(): raise KeyError('sum')\n"
        "    return answer == 'x'\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    agent = f"sh -c 'echo ran >> {tmp_path}/journal; echo x'"
    go(agent, grader="moody:grade")
    first, second = stored_attempts(store)
    assert (first["is_success"], first["error"]) == (None, "Grader 'moody:grade' raised KeyError: 'sum'.")
    assert (second["is_success"], second["error"]) == (True, "")
    (tmp_path / "mended").touch()
    told = go(agent, grader="moody:grade")
    assert [each.attempt.task.id for each in told.results] == ["sum"]
    newest = {
        row["task_id"]: row["is_success"] for row in sorted(stored_attempts(store), key=lambda row: row["revision"])
    }
    assert newest == {"sum": True, "town": True}
    assert (tmp_path / "journal").read_text() == "ran\nran\n"
    sys.modules.pop("moody")


def test_a_run_that_is_stopped_goes_on_and_what_was_interrupted_is_made_again(
    go: Go, store: Store, tmp_path: Path
) -> None:
    stop = threading.Event()
    agent = f"sh -c 'echo $SPANLOOP_EPISODE_ID >> {tmp_path}/started; [ -e {tmp_path}/go ] || exec sleep 600'"
    waiting = threading.Timer(0.5, stop.set)
    waiting.start()
    told = go(agent, stop=stop, attempts=2)
    assert (told.results, stored_attempts(store)) == ([], [])
    interrupted = set((tmp_path / "started").read_text().split())
    assert len(interrupted) == 2
    (tmp_path / "go").touch()
    told = go(agent, attempts=2)
    assert len(told.results) == 4
    rows = stored_attempts(store)
    assert {episode for row in rows for episode in row["interrupted_episode_ids"]} == interrupted
    assert not {row["episode_id"] for row in rows} & interrupted
    assert go(agent, attempts=3).counts[0] == (6, 4)
    assert len(stored_attempts(store)) == 6


def test_while_clickhouse_is_away_results_stay_in_the_ledger(
    go: Go, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> int:
        raise StoreError("ClickHouse is unreachable")

    module = "spanloop.evaluation.runner.stored_attempts"
    with monkeypatch.context() as patched:
        patched.setattr(store, "insert", away)
        patched.setattr(f"{module}._FINAL_TIMEOUT_S", 0.1)
        patched.setattr(f"{module}._RETRY_S", 0.05)
        with pytest.raises(StoreError, match="not stored yet: ClickHouse is unreachable") as caught:
            go("echo 2", grader="exact")
        assert "same command" in caught.value.next_step
    assert stored_attempts(store) == []
    told = go("echo 2", grader="exact")
    assert told.results == []
    assert [row["is_success"] for row in stored_attempts(store)] == [True, False]


def test_an_insert_that_is_repeated_changes_nothing(go: Go, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(*_: object) -> None:
        """The process dies before it marks them."""

    monkeypatch.setattr("spanloop.evaluation.runner.ledger.Ledger.mark_stored", forget)
    monkeypatch.setattr("spanloop.evaluation.runner.stored_attempts._EVERY_S", 0.05)
    go("sh -c 'sleep 0.3; echo 2'", grader="exact")
    count = "SELECT count() AS all, (SELECT count() FROM attempts FINAL) AS kept FROM attempts"
    (row,) = store.connection.query(count, doing="counting").to_dicts()
    assert row["kept"] == 2
    assert row["all"] >= 2
    assert len(rewards(store)) == 2


class UnsteadyModel(ServedModel):
    """A gateway that fails during the first attempts at ``sum``."""

    def __init__(self, failures: int) -> None:
        self.left = failures

    def wait(self, should_stop: Callable[[], bool], on_wait: Callable[[str], None]) -> Served:
        assert not should_stop()
        assert callable(on_wait)
        return Served((MODEL,), restarts=0)

    def is_unchanged(self, since: Served) -> bool:
        assert since.restarts == 0
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize(("failures", "interrupted"), [(1, 1), (100, MOST_STARTS - 1)])
def test_an_attempt_that_the_gateway_interrupts_is_made_again_but_not_for_ever(
    go: Go, store: Store, source: Path, failures: int, interrupted: int
) -> None:
    source.write_text('{"id": "sum", "question": "1+1", "answer": "2"}\n')
    told = go("sh -c 'exit 1'", served=UnsteadyModel(failures))
    (row,) = stored_attempts(store)
    assert (row["state"], len(row["interrupted_episode_ids"])) == ("crashed", interrupted)
    assert len(told.notes) == interrupted
    assert "the gateway failed during attempt 1 at sum" in told.notes[0]


def test_an_agent_that_cannot_be_made_ends_the_run_with_its_error(go: Go) -> None:
    for agent, message in (
        ("sh -c 'open", "cannot be read"),
        ("", "is empty"),
        ("no_such_module:f", "No module named"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            go(agent)
    assert len(go("echo 2").results) == 2  # nothing was started, so the run may still be another one


def test_results_come_while_others_still_run(go: Go, tmp_path: Path) -> None:
    seen: list[EndedAttempt] = []

    def on_result(ended: EndedAttempt) -> None:
        seen.append(ended)
        (tmp_path / "first is there").touch()

    agent = (
        f"sh -c 'if [ {{task_id}} = town ]; then while [ ! -e \"{tmp_path}/first is there\" ]; do sleep 0.02; done; fi'"
    )
    go(agent, Told(on_result=on_result))
    assert [(each.attempt.task.id, each.end.state) for each in seen] == [
        ("sum", EndState.FINISHED),
        ("town", EndState.FINISHED),
    ]
