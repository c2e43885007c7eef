"""The loop over real parts, but for the model: rounds, continuation, what is refused before anything starts."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from spanloop.foundation.errors import AlreadyRunningError, ConfigurationError, JobError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Promotion
from spanloop.store import Store
from spanloop.training.loop import checks, steps
from spanloop.training.loop import loop as loop_module
from spanloop.training.loop.app_file import read_app
from spanloop.training.loop.budget import BudgetSpentError
from spanloop.training.loop.checks import CheckedApp, CheckedTasks, check_app
from spanloop.training.loop.goal import Goal
from spanloop.training.loop.loop import Loop, LoopEnd, LoopOrder
from spanloop.training.loop.rounds import LoopRounds, StepName, StepRecord
from spanloop.training.loop.timetable import Timetable
from spanloop.training.models.registry import Registry
from spanloop.training.promotion.aliases import Aliases
from spanloop.training.promotion.decisions import Decisions
from spanloop.training.promotion.evaluation_run import EvaluationRun
from spanloop.training.run.job_api import JobApi

from ..gateway_stand_in import GatewayStandIn
from .support import APP, EVALUATION_TASKS, TRAINING_TASKS, Progress, Scheduler, write_model_folder

pytestmark = pytest.mark.usefixtures("environment")


def checked_app(data_dir: DataDir, store: Store, place: Path) -> CheckedApp:
    app = read_app(place / "app.toml")
    return check_app(data_dir, app, app.promotion or Promotion(), store)


@pytest.fixture
def run(
    data_dir: DataDir, store: Store, place: Path, gateway: GatewayStandIn, scheduler: Scheduler
) -> Callable[..., tuple[LoopEnd, Progress]]:
    """``m@v1`` is registered; run the loop of the file."""
    assert (gateway.served, scheduler.jobs) == ("", [])
    if not Registry(data_dir).list("m"):
        Registry(data_dir).add("m", write_model_folder(place / "weights"))

    checked = checked_app(data_dir, store, place)

    def run(**order: object) -> tuple[LoopEnd, Progress]:
        progress = Progress()
        return Loop(data_dir, store, checked, progress).run(LoopOrder(**order)), progress  # type: ignore[arg-type]

    return run


def test_a_round_collects_trains_tests_decides_and_serves(
    data_dir: DataDir, store: Store, gateway: GatewayStandIn, run: Callable[..., tuple[LoopEnd, Progress]]
) -> None:
    end, progress = run()
    assert end.reason == "1 rounds are done"
    (first,) = end.rounds
    assert (first.champion, first.candidate, first.outcome) == ("m@v1", "m@v2", "promoted")
    assert progress.finished_steps == [(name.value, False) for name in StepName]
    assert [(each.number, each.total) for each in progress.steps] == [(number, 5) for number in range(1, 6)]
    assert [steps.success_of(first.step(name).result) for name in (StepName.MEASURE, StepName.TEST)] == [
        (0.0, 0.0, 0.0),
        (1.0, 1.0, 1.0),
    ]
    collected = first.step(StepName.COLLECT).result or {}
    assert (collected["attempts"], collected["successes"]) == (TRAINING_TASKS, 0)
    (job,) = JobApi(data_dir).list()
    assert (job.spec.base, job.spec.episodes.policy_version, job.spec.episodes.since) == (
        "m@v1",
        "m@v1",
        first.started_at,
    )
    assert sorted(job.spec.episodes.task_ids) == [f"train/{number}" for number in range(TRAINING_TASKS)]
    (decision,) = Decisions(data_dir).list()
    assert (decision.candidate, gateway.served) == ("m@v2", "m@v2")
    runs = {row["run_id"]: row["attempts"] for row in store.query("attempt_runs", run_id="").to_dicts()}
    assert sorted(runs.values()) == [TRAINING_TASKS, EVALUATION_TASKS, EVALUATION_TASKS]

    # the goal is reached, so nothing follows
    end, progress = run(until=Goal.parse("success >= 0.9"))
    assert end.reason == "m@v2 has success 1; asked for: success >= 0.9"
    assert (len(end.rounds), progress.steps) == (1, [])
    end, _ = run(rounds=1)
    assert len(end.rounds) == 1


@pytest.fixture
def quick(
    data_dir: DataDir,
    store: Store,
    place: Path,
    scheduler: Scheduler,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., tuple[LoopEnd, Progress]]:
    """A loop whose attempts are not made: its evaluations and decisions are scripted."""
    assert scheduler.jobs == []
    registry = Registry(data_dir)
    registry.add("m", write_model_folder(place / "weights"))
    Aliases(data_dir).set("m@v1", "champion")
    app = read_app(place / "app.toml")
    tasks = CheckedTasks(frozenset(["t"]), frozenset(), 0)
    checked = CheckedApp(app, app.promotion or Promotion(), tasks, tasks, ())
    measured = {"success": [0.5, 0.4, 0.6], "tasks": 9, "evaluation": "e", "name": "e"}
    results = {
        "measure": measured,
        "collect": {"run": "r", "attempts": 4},
        "decide": {"outcome": "kept", "reason": "it is worse"},
    }
    for name, result in results.items():
        monkeypatch.setattr(steps, name, Mock(return_value=result))

    def run(**order: object) -> tuple[LoopEnd, Progress]:
        progress = Progress()
        loop = Loop(data_dir, store, checked._replace(app=read_app(place / "app.toml")), progress)
        return loop.run(LoopOrder(**order)), progress  # type: ignore[arg-type]

    return run


def test_an_interrupted_round_continues_after_its_last_finished_step(
    data_dir: DataDir,
    quick: Callable[..., tuple[LoopEnd, Progress]],
    scheduler: Scheduler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:

        def interrupt(_context: object, _number: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(steps, "train", interrupt)
        with pytest.raises(KeyboardInterrupt):
            quick(rounds=2)
    (opened,) = LoopRounds(data_dir).list()
    assert [(each.name.value, each.is_finished) for each in opened.steps] == [
        ("measure", True),
        ("collect", True),
        ("train", False),
    ]
    end, progress = quick(rounds=2)
    assert progress.finished_steps[:3] == [("measure", True), ("collect", True), ("train", False)]
    assert [(each.number, each.outcome, each.champion, each.candidate) for each in end.rounds] == [
        (1, "kept", "m@v1", "m@v2"),
        (2, "kept", "m@v1", "m@v3"),
    ]
    assert [each.number for each in progress.rounds] == [1, 2]
    assert [each.number for each in progress.steps] == [3, 4, 5, 6, 7, 8, 9, 10]
    assert len(scheduler.jobs) == 2


def test_a_job_that_was_submitted_before_a_kill_is_not_submitted_again(
    data_dir: DataDir,
    quick: Callable[..., tuple[LoopEnd, Progress]],
    scheduler: Scheduler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train = steps.train

    def killed_after_training(context: steps.StepContext, number: object) -> None:
        train(context, number)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(steps, "train", killed_after_training)
        with pytest.raises(KeyboardInterrupt):
            quick()
    end, _ = quick()
    assert end.rounds[0].candidate == "m@v2"
    assert (len(scheduler.jobs), len(JobApi(data_dir).list())) == (1, 1)


def test_a_failed_job_leaves_the_round_open_and_is_submitted_again(
    quick: Callable[..., tuple[LoopEnd, Progress]], scheduler: Scheduler
) -> None:
    scheduler.failure = "no trainable rows"
    with pytest.raises(JobError, match="no trainable rows") as caught:
        quick()
    assert "the same command trains again" in caught.value.next_step
    end, progress = quick()
    assert [each.outcome for each in end.rounds] == ["kept"]
    assert progress.finished_steps[:2] == [("measure", True), ("collect", True)]
    assert len(scheduler.jobs) == 2


def test_a_restarted_round_has_its_end_and_is_not_counted(
    quick: Callable[..., tuple[LoopEnd, Progress]], scheduler: Scheduler
) -> None:
    scheduler.failure = "broken"
    with pytest.raises(JobError):
        quick()
    end, _ = quick(rounds=1, restart_round=True)
    assert [(each.number, each.outcome) for each in end.rounds] == [(1, "abandoned"), (2, "kept")]


def test_rounds_at_an_interval_begin_when_it_is_time(
    data_dir: DataDir, quick: Callable[..., tuple[LoopEnd, Progress]], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(loop_module, "time", Mock(sleep=sleep))
    with pytest.raises(KeyboardInterrupt):
        quick(timetable=Timetable(every_minutes=60))
    assert [each.outcome for each in LoopRounds(data_dir).list()] == ["kept"]


def test_versions_are_measured_again_where_the_evaluation_was_changed_within_the_round(
    data_dir: DataDir, store: Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, weights = Registry(data_dir), write_model_folder(place / "weights")
    versions = [registry.add("m", weights), registry.add("m", weights, parent="m@v1")]
    app = read_app(place / "app.toml")
    name = EvaluationRun.of(versions[1], app.evaluation).evaluation_name
    rounds = LoopRounds(data_dir)
    number = rounds.begin("m", "m@v1")
    rounds.record(number, StepRecord(StepName.MEASURE, 1.0, 0, "", {"name": "evaluation-before"}))
    number = rounds.record(number, StepRecord(StepName.TEST, 1.0, 0, "", {"name": name}), candidate="m@v2")
    measured, asked = Mock(), Mock()
    for each, replacement in (("measure", measured), ("promote", asked), ("serve", Mock())):
        monkeypatch.setattr(steps, each, replacement)
    steps.decide(steps.StepContext(data_dir, store, app, Promotion(), Progress(), Mock()), number)
    assert [call.args[1].reference for call in measured.call_args_list] == ["m@v1"]
    assert asked.call_args.kwargs["evaluation"] == name


def test_two_loops_on_one_data_directory_are_refused(
    quick: Callable[..., tuple[LoopEnd, Progress]], monkeypatch: pytest.MonkeyPatch
) -> None:
    started, finish = threading.Event(), threading.Event()

    def wait(_context: object, _number: object) -> dict[str, object]:
        started.set()
        finish.wait(30)
        return {"run": "r", "attempts": 4}

    monkeypatch.setattr(steps, "collect", wait)
    first = threading.Thread(target=quick)
    first.start()
    try:
        assert started.wait(30)
        with pytest.raises(AlreadyRunningError, match="Another loop runs on the data directory"):
            quick()
    finally:
        finish.set()
        first.join()


def test_a_budget_ends_the_loop_before_the_step_that_would_exceed_it(
    place: Path,
    gateway: GatewayStandIn,
    quick: Callable[..., tuple[LoopEnd, Progress]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def collect(_context: object, _number: object) -> dict[str, object]:
        gateway.tokens += 600
        return {"run": "r", "attempts": 4}

    monkeypatch.setattr(steps, "collect", collect)
    (place / "app.toml").write_text(APP + "[budget]\ntokens = 1000\n")
    with pytest.raises(BudgetSpentError, match=r"1,000 tokens: 600 are spent, and about 600 would follow"):
        quick(rounds=2)
    assert gateway.tokens == 600
    (place / "app.toml").write_text(APP + "[budget]\ntokens = 1300\n")
    end, _ = quick(rounds=2)
    assert [each.tokens for each in end.rounds] == [600, 600]


def test_a_loop_without_a_model_says_how_to_add_one(data_dir: DataDir, store: Store, place: Path) -> None:
    (place / "app.toml").write_text(APP.replace('source = "weights"\n', ""))
    with pytest.raises(JobError, match="There is no model version 'm'"):
        checked_app(data_dir, store, place)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('agent = "no-such-program {question}"', "command 'no-such-program' does not exist"),
        ('agent = "python missing.py"', "script missing.py does not exist in"),
        ('agent = "solver:salve"', r"(?s)Agent 'solver:salve' cannot be loaded: .*salve"),
        ('grader = "exakt"', r"\[run\]: .*exakt"),
        (
            'grader_options = {expected = "solution"}',
            r"\[run\]: train.jsonl has 4 records, none of which is a task \(4 missing_field\): .*'solution' is missing",
        ),
        ('tasks = "none.jsonl"', r"\[run\]: .*none.jsonl"),
        ('tasks = "test.jsonl"', r"25 tasks stand in both \[run\] and \[evaluation\]: test/0"),
        ("min_tasks = 26", r"\[evaluation\] has 25 tasks, and \[promotion\] promotes on 26"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    data_dir: DataDir, store: Store, place: Path, line: str, message: str
) -> None:
    (place / "app.toml").write_text(with_line(line))
    with pytest.raises(ConfigurationError, match=message):
        checked_app(data_dir, store, place)
    assert LoopRounds(data_dir).list() == ()


def with_line(line: str) -> str:
    """Return the file with another value of a key, or with a further key of the first or last table."""
    key = line.partition(" ")[0]
    lines = list[str](APP.replace("max_tasks = 25", "max_tasks = 90").splitlines())
    found = next((index for index, each in enumerate(lines) if each.startswith(f"{key} =")), None)
    if found is None:
        lines.insert(len(lines) if key == "min_tasks" else lines.index('grader = "exact"') + 1, line)
    else:
        lines[found] = line
    return "\n".join(lines)


def test_the_gateway_answers_to_the_names_that_the_agent_calls(
    data_dir: DataDir, store: Store, place: Path, gateway: GatewayStandIn
) -> None:
    (place / "app.toml").write_text(APP.replace('name = "m"', 'name = "m"\ncalled = ["gpt-4o-mini"]'))
    checked = checked_app_with_model(data_dir, store, place)
    Registry(data_dir).add("m", place / "weights")
    context = steps.StepContext(data_dir, store, checked.app, Promotion(), Progress(), Mock())
    steps.serve(context, Registry(data_dir).get("m@v1"))
    assert gateway.asked[0] == ("names", {"model": "m", "names": ["gpt-4o-mini"]})
    assert gateway.served == "m@v1"


def test_an_agent_that_exits_at_once_ends_the_round_with_one_sentence(
    data_dir: DataDir, place: Path, run: Callable[..., tuple[LoopEnd, Progress]]
) -> None:
    (place / "solver.py").write_text("def solve(task):\n    raise SystemExit('no key')\n")
    with pytest.raises(steps.AgentBrokenError, match=r"Every attempt of 'solver:solve' crashed: .*no key"):
        run()
    (opened,) = LoopRounds(data_dir).list()
    assert opened.outcome is None
    assert not list(data_dir.runs.glob("*/ledger.db"))


@pytest.fixture
def judged(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The app's grader raises until this file exists."""
    monkeypatch.syspath_prepend(place)
    correction = place / "corrected"
    (place / "judge.py").write_text(
        "from pathlib import Path\n\n"
        "def judge(task, answer):\n"
        "    assert (Path(__file__).parent / 'corrected').exists(), 'no verdict'\n"
        "    return answer == task.fields['answer']\n"
    )
    (place / "app.toml").write_text(APP.replace('grader = "exact"', 'grader = "judge:judge"'))
    return correction


def test_a_grader_that_raises_ends_the_round_and_then_grades_the_stored_answers(
    store: Store, judged: Path, run: Callable[..., tuple[LoopEnd, Progress]]
) -> None:
    broken = rf"Grader 'judge:judge' graded none of {EVALUATION_TASKS} attempts: .*no verdict"
    with pytest.raises(steps.GraderBrokenError, match=broken):
        run()
    judged.touch()
    end, _ = run()
    assert end.rounds[0].outcome == "promoted"
    runs = {row["run_id"]: row["attempts"] for row in store.query("attempt_runs", run_id="").to_dicts()}
    assert sorted(runs.values()) == [TRAINING_TASKS, EVALUATION_TASKS, EVALUATION_TASKS]


def test_tasks_of_a_broken_file_are_named_with_their_lines(
    data_dir: DataDir, store: Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "check_agent", Mock())
    rows = (place / "train.jsonl").read_text()
    (place / "train.jsonl").write_text("{broken\n" + rows)
    checked = checked_app_with_model(data_dir, store, place)
    assert checked.notes == ("[run]: 1 records are no task; the others are used",)
    assert len(checked.training_tasks.ids) == len([json.loads(row) for row in rows.splitlines()])


def checked_app_with_model(data_dir: DataDir, store: Store, place: Path) -> CheckedApp:
    write_model_folder(place / "weights")
    return checked_app(data_dir, store, place)
