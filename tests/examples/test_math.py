"""The math example: its problems, its Python tool, its grade, and whole attempts from spans to episodes."""

import re
from collections import Counter
from pathlib import Path
from typing import Literal

import pytest
from examples.math import tasks
from examples.math.agent import grade
from examples.math.tasks import DIFFICULTIES, SPLITS, Task, make_tasks
from python_tool import evaluate

from spanloop.store.client import Address

from ..instrumentation.support import calls
from .attempts import run_example


def numbers(task: Task) -> set[str]:
    return set(re.findall(r"\d+", task.question))


def wording(task: Task) -> str:
    """The question without numbers, names and things."""
    return re.sub(r"\d+|\b[A-Z][a-z]+\b|\b[a-z]+s\b", "", task.question)


@pytest.mark.parametrize("seed", range(3))
def test_training_and_test_share_no_wording_and_no_number(seed: int) -> None:
    train, test = (make_tasks(split, count, seed) for split, count in zip(SPLITS, (128, 150), strict=True))
    assert len({task.question for task in train + test}) == len({task.id for task in train + test}) == 278
    assert Counter(task.difficulty for task in test) == dict.fromkeys(DIFFICULTIES, 50)
    assert not set().union(*map(numbers, train)) & set().union(*map(numbers, test))
    assert not {wording(task) for task in train} & {wording(task) for task in test}


def test_one_seed_gives_one_set_of_tasks() -> None:
    assert make_tasks("train", 64, 3) == make_tasks("train", 64, 3) != make_tasks("train", 64, 4)


def test_more_problems_than_there_are_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "TRIES", 0)
    with pytest.raises(ValueError, match="not 5 different problems; 0 were found"):
        make_tasks("test", 5, 0)


@pytest.mark.parametrize("split", SPLITS)
def test_the_tool_solves_every_task(split: Literal["train", "test"]) -> None:
    for task in make_tasks(split, 200, 1):
        assert numbers(task) == set(re.findall(r"\d+", task.expression))
        result = evaluate(task.expression)
        assert grade(task.answer, result) == 1.0


@pytest.mark.parametrize(
    ("code", "value"),
    [(" 2 + 3 * 4", "14"), ("(2 - 5) * 4", "-12"), ("7 / 2", "3.5"), ("84 / 4", "21"), ("-3", "-3"), ("1e3", "1000")],
)
def test_the_tool_evaluates_python(code: str, value: str) -> None:
    assert evaluate(code) == value


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("2 ** 9", "only numbers"),
        ("__import__('os')", "only numbers"),
        ("True + 1", "only numbers"),
        ("1 / 0", "division by zero"),
        ("2 +", "invalid syntax"),
        ("\0", "null bytes"),
        ("1 + " * 20 + "1", "longer than 60"),
        ("9" * 50 + "e999", "not finite"),
        ("9e300 * 9e300", "not finite"),
    ],
)
def test_the_tool_says_why_it_cannot(code: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        evaluate(code)


@pytest.mark.parametrize(
    ("answer", "reward"),
    [("42", 1.0), ("It is 42.", 1.0), ("40 + 2 = 42.0", 1.0), ("42 - 2 is 40", 0.1), ("421", 0.1), ("No idea.", 0.0)],
)
def test_only_the_right_number_earns_the_whole_reward(answer: str, reward: float) -> None:
    assert grade(42, answer) == reward
    assert grade(1042, "1,042") == 1.0


@pytest.mark.usefixtures("store")
def test_whole_attempts_become_episodes_with_their_rewards(address: Address, tmp_path: Path) -> None:
    solved, failed = make_tasks("test", 2, 0)
    script = (
        calls("python", {"code": "1 +"}, "call_1"),
        calls("python", {"code": solved.expression}, "call_2"),
        calls("ruby", {"code": "1"}, "call_3"),
    )
    tasks = [solved._asdict(), failed._asdict()]
    ran = run_example("math", "solve", tasks=tasks, script=script, address=address, data_dir=tmp_path)
    assert (ran.errors, ran.answers) == ([], [str(solved.answer), ""])
    columns = ("task_id", "step", "reward", "tool_error_count", "error_class", "fault_owner")
    steps = ran.transitions.sort("task_id", "step").select(columns)
    assert steps.rows() == [
        (solved.id, 0, 1.0, 1, "invalid_code", "policy"),
        (solved.id, 1, 1.0, 0, "", ""),
        (failed.id, 0, 0.0, 0, "unknown_tool", "policy"),
    ]
    assert ran.transitions["episode_id"].n_unique() == 2
    roles = [message["role"] for message in ran.requests[0]["messages"]]
    assert roles == ["system", *("user", "assistant", "tool") * 4, "user"]  # no example call is dropped
    names = Counter(ran.spans["SpanName"].to_list())
    assert names["execute_tool python"] == names["invoke_agent mathematician"] == 2
