"""The pool of environment processes: what fails costs its own episode, and the others go on."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from spanloop.evaluation.environments import Action, EnvironmentFailedError, EnvironmentSettings, Outcome
from spanloop.evaluation.environments.pool import EnvironmentPool, PoolSettings
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.processes.marked import VariableMark, find_processes
from spanloop.semconv.environment import PROCESS_MARK_ENV

HERE = Path(__file__).parent
ADD = Action("add", {"number": 1})
FAILING = ("hang", "crash", "nonsense")

Make = Callable[..., EnvironmentPool]


@pytest.fixture
def pools(tmp_path: Path) -> Iterator[Make]:
    made: list[EnvironmentPool] = []
    prefix = f"{tmp_path}/"

    def make(name: str = "troublesome:Counter", **settings: Any) -> EnvironmentPool:
        environment = EnvironmentSettings(name=name, **settings)
        made.append(EnvironmentPool(PoolSettings(environment, os.environ, prefix, HERE)))
        return made[-1]

    yield make
    for pool in made:
        pool.close()
    assert find_processes(None, VariableMark(PROCESS_MARK_ENV, prefix)) == []


def played(pool: EnvironmentPool, do: str = "", steps: int = 2, seed: int = 7) -> Outcome:
    session = pool.open({"do": do, "task_id": f"task-{do}"}, seed)
    try:
        for _ in range(steps):
            session.step(ADD)
    except EnvironmentFailedError:
        with pytest.raises(EnvironmentFailedError, match=re.escape(session.outcome.failure)):
            session.step(ADD)
    finally:
        pool.release(session)
    return session.outcome


def test_an_episode_has_its_own_object_its_options_and_the_sum_of_its_rewards(pools: Make) -> None:
    pool = pools(options={"goal": "3"})
    session = pool.open({"task_id": "t"}, 5)
    assert session.start.observation == "Count to 3, seed 5."
    assert [tool.name for tool in session.start.tools] == ["add"]
    other = pool.open({"task_id": "t"}, 6)
    assert [session.step(ADD).observation, other.step(ADD).observation] == ["1", "1"]
    last = session.step(Action("add", {"number": 2}))
    assert (last.observation, last.reward, last.done) == ("3", 1.0, True)
    assert session.outcome == Outcome(1.0, None, "The goal is reached.", {"goal": 1.0}, 2, done=True)
    assert session.step(ADD).error
    assert session.outcome.steps == 2
    pool.release(session)
    with pytest.raises(EnvironmentFailedError, match="closed"):
        session.step(ADD)
    assert played(pool, steps=1).steps == 1  # in the process of the first one, which counts anew
    assert pool.sessions == 1
    pool.close()  # closes what was left open
    assert pool.sessions == 0


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (Action("add", {}), "Error: Invalid arguments of add: $: 'number' is a required property. Tools: add."),
        (Action("subtract", {}), "Error: There is no tool 'subtract'. Tools: add."),
        (Action("", {}, "hello"), "Error: Call a tool; text is not read here. Tools: add."),
    ],
)
def test_a_mistake_of_the_agent_is_explained_and_does_not_reach_the_environment(
    pools: Make, action: Action, text: str
) -> None:
    session = pools().open({"do": "crash"}, 0)
    result = session.step(action)
    assert (result.observation, result.error, result.done, session.outcome.failure) == (text, True, False, "")


def test_what_fails_says_in_one_sentence_where_and_why(pools: Make) -> None:
    pool = pools(step_timeout_s=0.5, reset_timeout_s=0.5)
    expected = {
        "hang": "it did not answer step within 0.5 s",
        "crash": "its process ended during step (oh dear)",
        "nonsense": "step gave '42', expected a StepResult",
        "no number": "step gave reward nan, expected a finite number between -1e12 and 1e12",
        "raise": "it raised ZeroDivisionError: a reward that raises",
        "give up": "the lake is dry",
        "huge": "its answer has 5,000,149 bytes, expected at most 4,194,304",
        "hang at reset": "it did not answer reset within 0.5 s",
        "raise at reset": "it raised ValueError: the board is lost",
    }
    for do, why in expected.items():
        assert played(pool, do).failure == (
            f"The environment 'troublesome:Counter' failed (task 'task-{do}', seed 7, step 1): {why}. "
            "Next: try the environment alone with this task and seed."
        )
    assert played(pool, "print").reward == 1.0


def test_an_episode_ends_after_its_most_steps(pools: Make) -> None:
    session = pools(most_steps=2, options={"goal": "9"}).open({}, 0)
    assert not session.step(ADD).done
    last = session.step(ADD)
    assert (last.done, last.truncated) == (True, True)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("troublesome:Nothing", {}, "Environment 'troublesome:Nothing' cannot be imported"),
        ("lakes", {}, "No environment is called 'lakes'"),
        ("troublesome:Counter", {"gaol": "3"}, "there is no option 'gaol' .*did you mean 'goal'"),
    ],
)
def test_an_environment_that_cannot_be_used_is_refused_before_an_attempt(
    pools: Make, name: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        pools(name, options=options).check()


def test_an_environment_that_starts_no_episode_is_refused_within_its_limit(pools: Make) -> None:
    pool = pools(check_timeout_s=0.5)
    hanging = [{"task_id": name, "do": "hang at reset"} for name in ("a", "b", "c")]
    with pytest.raises(
        ConfigurationError, match=r"\(task 'b', seed 3, step 1\): it did not answer reset within 0.5 s"
    ) as caught:
        pool.check(hanging, 3)
    assert caught.value.what.startswith(
        "The environment started no episode, so nothing was begun. The environment 'trou"
    )
    assert "check_timeout_s" in caught.value.next_step
    pool.check([hanging[0], {"task_id": "good"}], 3)  # one task alone may be at fault
    assert pool.sessions == 0


def test_of_a_thousand_episodes_one_hangs_one_crashes_one_answers_nonsense_and_the_others_finish(pools: Make) -> None:
    pool = pools(step_timeout_s=2.0)
    troubles: dict[int, str] = dict(zip((100, 400, 700), FAILING, strict=True))

    def play(number: int) -> tuple[str, bool]:
        outcome = played(pool, troubles.get(number, ""), seed=number)
        return troubles.get(number, ""), outcome.done and not outcome.failure

    with ThreadPoolExecutor(4) as executor:
        ended = Counter(executor.map(play, range(1_000)))
    assert ended == {("", True): 997, **{(do, False): 1 for do in FAILING}}
    assert pool.sessions == 0


@pytest.mark.slow
def test_resident_memory_does_not_grow_with_the_number_of_episodes(pools: Make) -> None:
    pool, sizes = pools(), list[int]()
    for episodes in (1_000, 4_000):
        for number in range(episodes):
            assert played(pool, seed=number).done
        process = psutil.Process()
        sizes.append(sum(each.memory_info().rss for each in (process, *process.children(recursive=True))))
    assert sizes[1] <= 1.1 * sizes[0]
