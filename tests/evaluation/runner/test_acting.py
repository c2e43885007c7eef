"""Attempts that act in an environment: its verdict counts, and its faults are nobody's but its own."""

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spanloop.evaluation.environments import EnvironmentSettings
from spanloop.evaluation.environments.pool import PoolSettings
from spanloop.evaluation.runner.acting import FAILED_IN_A_ROW, EnvironmentBrokenError
from spanloop.evaluation.runner.attempt import EndState
from spanloop.evaluation.runner.ledger import Ledger
from spanloop.evaluation.runner.making import MOST_STARTS
from spanloop.evaluation.runner.run import mark_prefix, run_attempts
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.processes.marked import VariableMark, find_processes
from spanloop.semconv.environment import PROCESS_MARK_ENV
from spanloop.store import Store

from .support import Told, plan_of, rewards, stored_attempts

ENVIRONMENTS = Path(__file__).parents[1] / "environments"
AGENT = """
from spanloop.instrumentation import environment

def count(task):
    world = environment()
    if task.get("do") == "leave":
        return "bye"
    while not world.done:
        try:
            world.step("add", {"number": 1})
        except ConnectionError:
            return "I go on"
    world.close()
    return world.text
"""

Go = Callable[..., Told]


@pytest.fixture
def go(store: Store, tmp_path: Path) -> Go:
    """Run the agent on tasks; nothing may be left."""
    (tmp_path / "counting.py").write_text(AGENT)

    def ran(
        *tasks: dict[str, Any], name: str = "troublesome:Counter", agent: str = "counting:count", **more: Any
    ) -> Told:
        source, folder, progress = tmp_path / "tasks.jsonl", tmp_path / "runs" / "r1", Told()
        source.write_text("".join(json.dumps(task) + "\n" for task in tasks))
        settings = EnvironmentSettings(name=name, step_timeout_s=0.3)
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ENVIRONMENTS), str(tmp_path)))}
        plan = plan_of(folder, source, agent, environment=variables, cwd=tmp_path, **more)
        environments = PoolSettings(settings, variables, mark_prefix(folder))
        plan = plan._replace(making=plan.making._replace(environments=environments))
        run_attempts(plan, store, progress, threading.Event())
        assert find_processes(None, VariableMark(PROCESS_MARK_ENV, mark_prefix(folder))) == []
        return progress

    return ran


def test_the_environment_judges_an_attempt_and_what_the_agent_leaves_open_is_closed(go: Go, store: Store) -> None:
    progress = go({"id": "good"}, {"id": "early", "do": "leave"}, parallel=1)
    good, early = (progress.by_attempt[name, 1] for name in ("good", "early"))
    assert (good.end.state, good.end.answer, early.end.answer) == (EndState.FINISHED, "2", "bye")
    assert good.verdict is not None
    assert (good.verdict.score, good.verdict.is_success) == (1.0, True)
    assert good.verdict.evidence == {
        "reason": "The goal is reached.",
        "components": {"goal": 1.0},
        "steps": 2,
        "done": True,
    }
    assert early.verdict is not None
    assert (early.verdict.score, early.verdict.evidence["reason"]) == (
        0.0,
        "The agent left the environment after 0 steps, with rewards of 0 in all.",
    )
    assert [(row["task_id"], row["reward"], row["is_success"]) for row in stored_attempts(store)] == [
        ("early", 0.0, False),
        ("good", 1.0, True),
    ]
    assert sorted(rewards(store).values()) == [(0.0, "failure", "grader"), (1.0, "success", "grader")]


def test_an_attempt_whose_environment_fails_is_made_again_and_in_the_end_counts_as_crashed(go: Go) -> None:
    progress = go({"id": "dead", "do": "crash"}, {"id": "good"}, parallel=1)
    dead, good = (progress.by_attempt[name, 1] for name in ("dead", "good"))
    assert good.verdict is not None
    assert (dead.end.state, dead.verdict, len(dead.attempt.interrupted)) == (EndState.CRASHED, None, MOST_STARTS - 1)
    assert "(task 'dead', seed" in dead.end.error
    assert "its process ended during step (oh dear)" in dead.end.error
    assert sum("is made again: The environment" in note for note in progress.notes) == MOST_STARTS - 1


def test_a_command_finds_its_environment_by_variables_and_a_grader_wins(go: Go, tmp_path: Path) -> None:
    progress = go(
        {"id": "t", "answer": "2"},
        agent=f"{sys.executable} -c 'import counting; print(counting.count({{}}))'",
        grader="exact",
    )
    ended = progress.by_attempt["t", 1]
    assert ended.verdict is not None
    assert ended.verdict.evidence["expected"] == "2"
    assert ended.end.outcome is not None
    with Ledger(tmp_path / "runs" / "r1") as ledger:
        assert ledger.summary().successes == 1
        assert ledger.erase([ended.attempt.episode_id]) == 1


def test_an_environment_that_cannot_be_used_is_refused_before_an_attempt(go: Go) -> None:
    with pytest.raises(ConfigurationError, match="Environment 'nowhere' cannot be used: No environment is called"):
        go({"id": "t"}, name="nowhere")


MENDED = """
import troublesome

class Mended(troublesome.Counter):
    "The same, whose tasks do nothing else."

    def reset(self, task, seed):
        return super().reset({}, seed)
"""


def test_an_environment_that_never_answers_ends_the_run_and_the_same_call_loses_nothing(
    go: Go, store: Store, tmp_path: Path
) -> None:
    tasks = [{"id": f"t{number}", "number": number, "do": "hang"} for number in range(6)]
    with pytest.raises(EnvironmentBrokenError, match=r"did not answer step within 0\.3 s") as caught:
        go(*tasks, parallel=1)
    assert f"failed in {FAILED_IN_A_ROW} attempts in a row" in caught.value.what
    assert "the same command continues" in caught.value.next_step
    with Ledger(tmp_path / "runs" / "r1") as ledger:
        assert ledger.summary().states == {}
    assert stored_attempts(store) == []
    (tmp_path / "mended.py").write_text(MENDED)
    progress = go(*tasks, name="mended:Mended", parallel=1)
    assert {each.end.state for each in progress.results} == {EndState.FINISHED}
    assert len(stored_attempts(store)) == len(tasks)


def test_a_few_bad_tasks_do_not_end_the_run(go: Go) -> None:
    bad = [{"id": f"bad-{number}", "number": number, "do": "raise"} for number in range(FAILED_IN_A_ROW - 1)]
    progress = go(*bad, {"id": "good"}, parallel=1)
    states = {each.attempt.task.id: each.end.state for each in progress.results}
    assert states == {**{task["id"]: EndState.CRASHED for task in bad}, "good": EndState.FINISHED}
