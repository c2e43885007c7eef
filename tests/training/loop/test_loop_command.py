"""``spanloop loop`` and ``spanloop init`` as commands: what they print, and what they refuse."""

from pathlib import Path
from unittest.mock import Mock

import pytest
import typer

from spanloop.cli.learning import loop_display
from spanloop.cli.learning.loop import run_file
from spanloop.cli.learning.loop_display import LoopDisplay, duration_text, print_rounds
from spanloop.foundation.errors import NotRunningError
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.training.loop.loop import LoopOrder
from spanloop.training.loop.progress import RunningStep
from spanloop.training.loop.rounds import LoopRounds, RoundOutcome, StepName, StepRecord

from .support import write_model_folder

STEP = RunningStep(1, StepName.COLLECT, "m@v1 attempts the training tasks", 2, 10, 120.0, 600.0)


@pytest.mark.usefixtures("environment")
def test_a_dry_run_prints_the_plan_and_starts_nothing(
    data_dir: DataDir, store: Store, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert store.database
    write_model_folder(place / "weights")
    assert run_file(data_dir, place / "app.toml", LoopOrder(), dry_run=True) is None
    text = capsys.readouterr().out
    assert "m: everything is in order; nothing was started" in text
    for line in ("solver:solve", "4 tasks, 1 attempts each", "sft, 2 steps", "25 tasks", "no limit"):
        assert line in text
    assert LoopRounds(data_dir).list() == ()
    with pytest.raises(NotRunningError, match="needs a running collector, gateway, scheduler"):
        run_file(data_dir, place / "app.toml", LoopOrder())
    assert "# the comment stays" in (place / "app.toml").read_text()


def test_a_missing_folder_is_named(data_dir: DataDir) -> None:
    with pytest.raises(typer.BadParameter, match="there is no folder"):
        run_file(data_dir, Path("nowhere/app.toml"), LoopOrder())


def test_a_step_is_shown_with_its_number_the_time_left_and_its_result(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(loop_display, "time", Mock(monotonic=lambda: now[0]))
    with LoopDisplay() as display:
        display.started(STEP)
        now[0] = 60.0
        display.progressed(30, 120, "attempts, 40% succeed")
        measured = StepRecord(StepName.TEST, 90.0, 0, "", {"success": [0.5, 0.4, 0.6], "tasks": 40})
        display.finished(STEP, measured, was_done=False)
        display.finished(STEP, StepRecord(StepName.COLLECT, 5.0, 0, "", {"attempts": 0}), was_done=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "[step 2 of 10, round 1] m@v1 attempts the training tasks · 12 min left"
    # by its own speed 180 s, and 600 s of later steps
    assert lines[1].endswith("30 of 120 attempts, 40% succeed · 13 min left")
    assert lines[2].endswith("success 50 % [40, 60] on 40 tasks (90 s)")
    assert lines[3].endswith("trained on demonstrations alone (done before)")


def test_rounds_are_printed_with_success_and_decision(data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    rounds = LoopRounds(data_dir)
    first = rounds.begin("m", "m@v1")
    rounds.record(first, StepRecord(StepName.MEASURE, 60.0, 1_200, "", {"success": [0.5, 0.4, 0.6], "tasks": 40}))
    rounds.end(first, RoundOutcome.KEPT, "")
    print_rounds(rounds.list())
    text = capsys.readouterr().out
    for part in ("m@v1", "50 % [40, 60]", "kept", "60 s", "1,200"):
        assert part in text
    assert [duration_text(seconds) for seconds in (59, 600, 9_000)] == ["59 s", "10 min", "2.5 h"]
