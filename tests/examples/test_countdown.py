"""The countdown example: its puzzles, its verifier and feedback, and whole attempts from spans to episodes."""

from collections import Counter
from pathlib import Path

import pytest
from examples.countdown import tasks
from examples.countdown.agent import OPENING, Puzzle, expression_of, feedback, grade, value_of
from examples.countdown.tasks import DIFFICULTIES, SPLITS, Task, make_tasks

from spanloop.store.client import Address

from ..instrumentation.support import says
from .attempts import run_example

PUZZLE = Puzzle("test/0000", "Numbers: 2, 5, 3. Target: 13.", [2, 5, 3], 13, "three numbers")


def sets_of_numbers(seeds: list[list[Task]]) -> set[tuple[int, ...]]:
    return {tuple(sorted(puzzle.numbers)) for puzzles in seeds for puzzle in puzzles}


def test_training_and_test_share_no_set_of_numbers_with_any_seed() -> None:
    train, test = ([make_tasks(split, 30, seed) for seed in range(3)] for split in SPLITS)
    assert not sets_of_numbers(train) & sets_of_numbers(test)
    for puzzles in train + test:
        assert len({(*sorted(puzzle.numbers), puzzle.target, puzzle.difficulty) for puzzle in puzzles}) == 30
        assert Counter(puzzle.difficulty for puzzle in puzzles) == dict.fromkeys(DIFFICULTIES, 10)


def test_one_seed_gives_one_set_of_puzzles() -> None:
    assert make_tasks("train", 30, 3) == make_tasks("train", 30, 3) != make_tasks("train", 30, 4)


def test_more_puzzles_than_there_are_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "PUZZLES_A_SEED", 1)
    with pytest.raises(ValueError, match=r"not 7 different puzzles; \d were found"):
        make_tasks("test", 7, 0)


@pytest.mark.parametrize(
    ("expression", "reward"),
    [
        ("2 * 5 + 3", 1.0),
        ("3+(5*2)", 1.0),
        ("3 - 2 * -5", 1.0),
        ("2 + 5 + 3", 0.05),
        ("13", 0.05),
        ("5 + 5 + 3", 0.05),
        ("2 * 5 + 3 = 13", 0.01),
        ("2 ** 5", 0.01),
        ("2 / 0", 0.01),
        ("2 5 3", 0.01),
        ("print(2)", 0.01),
        ("__import__('os')", 0.01),
        ("2 +", 0.01),
        ("", 0.01),
        ("2 + " * 20 + "3", 0.01),
    ],
)
def test_the_verifier_grades_expressions(expression: str, reward: float) -> None:
    assert grade(PUZZLE, expression) == reward


@pytest.mark.parametrize("answer", ["2 * 5 + 3", " 2 * 5 + 3 = 13", "2 * 5 + 3 = 12, too small.\n13 - 2"])
def test_the_expression_stands_before_the_equals_sign(answer: str) -> None:
    assert expression_of(answer) == "2 * 5 + 3"


def test_the_environment_says_what_an_expression_evaluates_to() -> None:
    assert feedback(PUZZLE, "2 + 5 + 3") == "2 + 5 + 3 = 10, too small."
    assert feedback(PUZZLE, "(2 + 5) * 3") == "(2 + 5) * 3 = 21, too large."
    assert feedback(PUZZLE, "2 + 5 / 3") == "2 + 5 / 3 = 11/3, too small."
    assert feedback(PUZZLE, "2 * 5") == "Use 2, 5, 3."
    assert feedback(PUZZLE, "13!") == "That is not an expression."


@pytest.mark.usefixtures("store")
def test_whole_attempts_become_episodes_with_their_rewards(address: Address, tmp_path: Path) -> None:
    solved, failed = make_tasks("test", 2, 0)
    first, second = solved.numbers
    wrong, right = f"{first} * {second}", f"{max(first, second)} - {min(first, second)}"
    assert (grade(Puzzle(**solved._asdict()), wrong), value_of(right)) == (0.05, solved.target)
    script = (says(wrong), says(f" {right} = 5\n"), says("I do not know."))
    tasks = [solved._asdict(), failed._asdict()]
    ran = run_example("countdown", "play", tasks=tasks, script=script, address=address, data_dir=tmp_path)
    assert (ran.errors, ran.answers) == ([], [right, "I do not know."])
    assert [message["content"] for message in ran.requests[1]["messages"][len(OPENING) :]] == [
        solved.question,
        wrong,
        f"{wrong} = {first * second}, too large.",
    ]
    steps = ran.transitions.sort("task_id", "step").select("task_id", "step", "reward", "error_class", "fault_owner")
    assert steps.rows() == [
        (solved.id, 0, 1.0, "", ""),
        (solved.id, 1, 1.0, "", ""),
        (failed.id, 0, 0.01, "", ""),
        (failed.id, 1, 0.01, "loop", "policy"),
        (failed.id, 2, 0.01, "", ""),
    ]
    assert ran.transitions["episode_id"].n_unique() == 2
