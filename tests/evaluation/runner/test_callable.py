"""A Python callable as the agent: one worker process for many attempts."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spanloop.evaluation.runner.agent import NotStartedError
from spanloop.evaluation.runner.answers import Output
from spanloop.evaluation.runner.attempt import AttemptEnd, EndState, TaskAttempt
from spanloop.evaluation.runner.callable_agent import CallableAgent
from spanloop.evaluation.runner.run import mark_prefix
from spanloop.evaluation.tasks import Task
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.processes.marked import VariableMark, find_processes
from spanloop.semconv.environment import PROCESS_MARK_ENV

from .support import settings_of

MODULE = """
import asyncio, os, subprocess, sys, time

calls = 0

def solve(task):
    global calls
    calls += 1
    match task["do"]:
        case "answer": return f"{os.getpid()} {calls}"
        case "ids": return {name: os.environ[f"SPANLOOP_{name}"] for name in ("TASK_ID", "EPISODE_ID", "SEED")}
        case "child": return subprocess.check_output(["sh", "-c", "echo $SPANLOOP_EPISODE_ID"], text=True)
        case "print": print("a"); print("the answer")
        case "raise": raise ValueError("it went wrong")
        case "exit": sys.exit(0)
        case "die": print("oh dear", file=sys.stderr, flush=True); os._exit(0)
        case "hang": subprocess.Popen(["setsid", "sleep", "600"]); time.sleep(600)
        case "stdin": return repr(sys.stdin.read())
        case "flood": print("x" * 10_000_000); return "y" * 10_000_000

async def later(task):
    await asyncio.sleep(0)
    return "later"

broken = 3
"""

Make = Callable[..., CallableAgent]


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Make]:
    (tmp_path / "solver.py").write_text(MODULE)
    made: list[CallableAgent] = []

    def make(target: str, timeout_s: float = 60.0) -> CallableAgent:
        settings = settings_of(tmp_path / "run", target, cwd=tmp_path, timeout_s=timeout_s)
        made.append(CallableAgent(settings, output=Output.LINE))
        return made[-1]

    yield make
    for agent in made:
        agent.close()
    assert find_processes(None, VariableMark(PROCESS_MARK_ENV, mark_prefix(tmp_path / "run"))) == []


@pytest.fixture
def agent(agents: Make) -> CallableAgent:
    return agents("solver:solve")


def attempt(agent: CallableAgent, do: str, number: int = 1, **fields: Any) -> AttemptEnd:
    made = TaskAttempt(1, Task("t", {"do": do, **fields}, "d"), number, f"episode-{number}", (), 7 + number)
    end = agent.attempt(made, lambda: False)
    assert end is not None
    return end


def test_one_worker_makes_many_attempts_each_with_its_ids(agent: CallableAgent) -> None:
    first, second = attempt(agent, "answer"), attempt(agent, "answer", 2)
    assert first.state is EndState.FINISHED
    pid = first.answer.split()[0]
    assert (first.answer, second.answer) == (f"{pid} 1", f"{pid} 2")
    assert attempt(agent, "ids", 3).answer == '{"TASK_ID": "t", "EPISODE_ID": "episode-3", "SEED": "10"}'
    assert attempt(agent, "child", 4).answer.strip() == "episode-4"
    assert attempt(agent, "print").answer == "the answer"
    assert attempt(agent, "stdin").answer == "''"
    assert len(attempt(agent, "flood").answer) == 256 << 10
    raised = attempt(agent, "raise")
    assert raised.state is EndState.CRASHED
    assert raised.error.startswith("Traceback")
    assert raised.error.endswith("ValueError: it went wrong")
    assert "SystemExit: 0" in attempt(agent, "exit").error
    assert attempt(agent, "answer").answer.split()[0] == pid


def test_a_worker_that_dies_costs_its_attempt_and_the_next_gets_another(agent: CallableAgent) -> None:
    died = attempt(agent, "die")
    assert (died.state, died.error) == (EndState.CRASHED, "its process ended with status 0\noh dear")
    assert attempt(agent, "answer").answer.split()[1] == "1"


def test_a_worker_that_hangs_ends_with_all_it_started(agents: Make) -> None:
    agent = agents("solver:solve", timeout_s=1.0)
    hung = attempt(agent, "hang")
    assert (hung.state, hung.error) == (EndState.TIMED_OUT, "stopped after 1 s")
    assert attempt(agent, "answer").state is EndState.FINISHED


def test_a_coroutine_function_is_awaited(agents: Make) -> None:
    assert attempt(agents("solver:later"), "x").answer == "later"


def test_a_run_that_is_stopped_interrupts_the_attempt(agent: CallableAgent) -> None:
    made = TaskAttempt(1, Task("t", {"do": "hang"}, "d"), 1, "episode", (), 0)
    assert attempt(agent, "answer").state is EndState.FINISHED
    assert agent.attempt(made, lambda: True) is None


def test_a_run_that_is_stopped_while_a_worker_starts_has_not_started_the_attempt(agents: Make, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time; time.sleep(600)")
    made = TaskAttempt(1, Task("t", {"do": "answer"}, "d"), 1, "episode", (), 0)
    with pytest.raises(NotStartedError):
        agents("slow:solve").attempt(made, lambda: True)


@pytest.mark.parametrize(
    ("target", "message"),
    [("solver:nothing", "AttributeError"), ("solver:broken", "expected a function"), ("nowhere:f", "No module named")],
)
def test_a_callable_that_cannot_be_loaded_is_one_error(agents: Make, target: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        attempt(agents(target), "answer")
