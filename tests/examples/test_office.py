"""The example agent's world: questions with right answers, tools that really run, a grade that can be checked."""

import re
from pathlib import Path

import pytest
from agent import EXAMPLES, Call, grade
from hypothesis import given
from hypothesis import strategies as st
from tasks import KINDS, SPLITS, Split, Task, contains, make_tasks, read_tasks, world, write_office, write_tasks
from tools import Office, definitions

TASK = Task("test/price/000", "price", "What is the cost of the blue rug?", "42")


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Office:
    database = tmp_path_factory.mktemp("office") / "office.sqlite"
    write_office(database)
    return Office(database)


@pytest.mark.parametrize("seed", range(4))
def test_two_hundred_tests_and_as_many_for_each_tool(seed: int) -> None:
    tasks = make_tasks("test", 200, seed)
    assert len({task.question for task in tasks}) == len({task.id for task in tasks}) == 200
    assert {kind: sum(task.kind == kind for task in tasks) for kind in KINDS} == dict.fromkeys(KINDS, 50)


def test_one_seed_gives_one_set_of_tasks() -> None:
    assert make_tasks("train", 64, 3) == make_tasks("train", 64, 3) != make_tasks("train", 64, 4)


def test_more_questions_than_there_are_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"not 4000 different questions; \d+ were found"):
        make_tasks("test", 4_000, 0)


def test_training_and_test_share_no_wording_and_no_value() -> None:
    train, test = (_names(split) for split in SPLITS)
    assert not train & test
    questions = [{_wording(task.question) for task in make_tasks(split, 200, 0)} for split in SPLITS]
    assert not questions[0] & questions[1]
    operands = [
        {re.findall(r"\d+", task.question)[0] for task in make_tasks(split, 200, 0) if task.kind == "calculator"}
        for split in SPLITS
    ]
    assert not operands[0] & operands[1]


def _names(split: Split) -> set[str]:
    known = world(split)
    return {*known.prices, *known.events, *known.companies}


def _wording(question: str) -> str:
    for name in sorted(_names("train") | _names("test"), key=len, reverse=True):
        question = question.replace(name, "*")
    return re.sub(r"\d+", "#", question)


@pytest.mark.parametrize("split", SPLITS)
def test_every_task_can_be_solved_with_its_tool(office: Office, split: Split) -> None:
    for task in make_tasks(split, 200, 1):
        argument = _argument(task, _names(split))
        result = office.call(task.kind, f'{{"input": "{argument}"}}')
        assert contains(result, task.answer), (task, result)
        assert grade(task, [Call(task.kind, result)], f"It is {task.answer}.") == 1.0


def _argument(task: Task, names: set[str]) -> str:
    if task.kind != "calculator":
        return next(name for name in names if name in task.question)
    first, second = re.findall(r"\d+", task.question)
    product = ("times", "Multiply", "product", "*")
    sign = "*" if any(word in task.question for word in product) else "+"
    return f"{first} {'-' if 'minus' in task.question or ' - ' in task.question else sign} {second}"


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("clock", '{"input": "x"}', "no tool 'clock'; there are price"),
        ("price", '{"input": "moon"}', "no item 'moon'"),
        ("price", '{"item": "blue rug"}', 'price takes {"input": "text"}'),
        ("price", '{"input": 3}', 'price takes {"input": "text"}'),
        ("time", '{"input": "war"}', "no event 'war'"),
        ("search", '{"input": "the"}', "no page has a word"),
        ("calculator", '{"input": "2 ** 9"}', "only whole numbers"),
        ("calculator", '{"input": "__import__(1)"}', "only whole numbers"),
        ("calculator", f'{{"input": "{"1 + " * 20}1"}}', "longer than 40"),
    ],
)
def test_a_tool_says_why_it_cannot(office: Office, name: str, arguments: str, error: str) -> None:
    with pytest.raises((LookupError, ValueError), match=re.escape(error)):
        office.call(name, arguments)


def test_the_grade_counts_parts_of_the_way() -> None:
    right, wrong = Call("price", "42 dollars"), Call("price", "17 dollars")
    assert grade(TASK, [right], "It costs 42 dollars.") == 1.0
    assert grade(TASK, [Call("price", None), right], "42") == 1.0
    assert grade(TASK, [right], "It costs 24 dollars.") == 0.4
    assert grade(TASK, [wrong], "It costs 42 dollars.") == 0.2
    assert grade(TASK, [Call("search", "a page")], "No idea.") == 0.1
    assert grade(TASK, [], "42") == 0.1
    assert grade(TASK, [Call("search", None)], "No idea.") == 0.0


@given(number=st.integers(0, 999), text=st.text(alphabet="0123456789:.- ", max_size=12))
def test_an_answer_counts_only_as_a_word_of_its_own(number: int, text: str) -> None:
    assert contains(f"It is {number}.", str(number))
    assert contains(text, str(number)) <= (str(number) in text)
    assert not contains(f"It is 1{number}1.", str(number)) or f"1{number}1" == str(number)
    assert not contains(f"-{number}", str(number))


def test_the_examples_are_answered_by_no_tool_of_the_world() -> None:
    assert not any(name in str(EXAMPLES) for split in SPLITS for name in _names(split))
    assert {each["function"]["name"] for each in definitions()} == set(KINDS)


def test_tasks_survive_their_file(tmp_path: Path) -> None:
    tasks = make_tasks("train", 8, 0)
    write_tasks(tmp_path / "tasks.jsonl", tasks)
    assert read_tasks(tmp_path / "tasks.jsonl") == tasks
