"""What each grader says of right and wrong answers, and what it refuses to grade."""

import json
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spanloop.evaluation.graders import GRADER_POINT, GraderContext, GradingError, Verdict, load_grader
from spanloop.evaluation.tasks import Task
from spanloop.foundation.errors import ConfigurationError

Grade = Callable[..., Verdict]


@pytest.fixture
def grade(tmp_path: Path) -> Grade:
    """``grade(NAME, FIELDS, ANSWER, option=…)``."""

    def graded(name: str, fields: dict[str, Any], answer: str, **options: str) -> Verdict:
        grader = load_grader(name, options, GraderContext(tmp_path))
        assert set(grader.required_fields) <= set(fields)
        verdict = grader.grade(Task("t", fields, "digest"), answer)
        assert json.loads(verdict.evidence_json()) == dict(verdict.evidence)
        return verdict

    return graded


@pytest.mark.parametrize(
    ("name", "fields", "answer", "options", "is_right"),
    [
        ("exact", {"answer": "New York"}, " new  york.", {}, True),
        ("exact", {"answer": "New York"}, "York", {}, False),
        ("exact", {"gold": ["NYC", "New York"]}, "NYC", {"expected": "gold"}, True),
        ("exact", {"answer": 42}, "42", {}, True),
        ("numeric", {"answer": "6 apples #### 1,200"}, "It is 1200.", {}, True),
        ("numeric", {"answer": 0.333333333}, "1/3 = 0.3333333331", {}, True),
        ("numeric", {"answer": 100}, "99", {"relative": "0.02"}, True),
        ("numeric", {"answer": 100}, "99", {}, False),
        ("numeric", {"answer": 100}, "no number", {}, False),
        ("regex", {"pattern": r"\bB\d+"}, "seat B12", {}, True),
        ("regex", {"pattern": r"B\d+"}, "seat B12", {"whole": "true"}, False),
        ("regex", {}, "ok: done", {"pattern": "^ok"}, True),
        ("json", {"answer": {"a": [1, True], "b": None}}, '```json\n{"b": null, "a": [1.0, true]}\n```', {}, True),
        ("json", {"answer": '{"a": 1}'}, '{"a": 1}', {}, True),
        ("json", {"answer": {"a": 1}}, '{"a": true}', {}, False),
        ("json", {"answer": {"a": 1}}, '{"a": 1, "b": 2}', {}, False),
        ("json", {"answer": {"a": 1}}, '{"a": 1, "b": 2}', {"subset": "true"}, True),
        ("json", {"answer": {"a": 1}}, "not json", {}, False),
        ("json", {"answer": {"id": 1234567890}}, '{"id": 1234567891}', {}, False),
        ("json", {"answer": 0.3}, "0.30000000000000004", {}, True),
        ("code", {"tests": "assert double(2) == 4"}, "def double(x):\n    return 2 * x", {}, True),
        ("code", {"tests": "assert double(2) == 4"}, "def double(x):\n    return x", {}, False),
    ],
)
def test_an_answer_is_right_or_wrong(
    *, grade: Grade, name: str, fields: dict[str, Any], answer: str, options: dict[str, str], is_right: bool
) -> None:
    verdict = grade(name, fields, answer, **options)
    assert (verdict.score, verdict.is_success) == (float(is_right), is_right)


def test_the_first_difference_of_two_json_values_is_in_the_evidence(grade: Grade) -> None:
    fields = {"answer": {"a": [{"x": 1}, {"x": 2}]}}
    assert grade("json", fields, '{"a": [{"x": 1}, {"x": 3}]}').evidence["difference"] == "$.a[1].x: 3, expected 2"
    assert grade("json", fields, '{"b": 1}').evidence["difference"] == "$.a: missing"


def test_a_json_schema_may_stand_for_an_expected_value(grade: Grade, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "required": ["city"]}')
    assert grade("json", {}, '{"city": "Oslo"}', schema_file=str(schema)).is_success
    assert "'city' is a required property" in str(grade("json", {}, "{}", schema_file=str(schema)).evidence)
    schema.write_text('{"type": 3}')
    with pytest.raises(ConfigurationError, match="schema_file"):
        grade("json", {}, "{}", schema_file=str(schema))


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE item (name TEXT, price REAL)")
        database.executemany("INSERT INTO item VALUES (?, ?)", [("a", 1.0), ("b", 2.0), ("c", 2.0)])
    return path


@pytest.mark.parametrize(
    ("query", "reference", "is_right"),
    [
        ("SELECT name FROM item WHERE price = 2", "SELECT name FROM item WHERE price > 1", True),
        ("SELECT name FROM item ORDER BY name DESC", "SELECT name FROM item", True),
        ("SELECT name FROM item ORDER BY name DESC", "SELECT name FROM item ORDER BY name", False),
        ("SELECT price FROM item GROUP BY price ORDER BY count(*)", "SELECT price FROM item GROUP BY 1", True),
        (
            "SELECT price FROM item GROUP BY price ORDER BY count(*)",
            "SELECT price FROM item GROUP BY price ORDER BY count(*) DESC",
            False,
        ),
        ("SELECT name FROM item ORDER BY name DESC", "SELECT name FROM (SELECT name FROM item ORDER BY name)", True),
        ("SELECT 1234567891", "SELECT 1234567890", False),
        ("SELECT 0.1 + 0.2", "SELECT 0.3", True),
        ("SELECT 3.0", "SELECT 3", True),
        ("SELECT 3; SELECT 3", "SELECT 3", False),
        ("```sql\nSELECT count(*) FROM item;\n```", "SELECT 3", True),
        ("SELECT name FROM nothing", "SELECT 3", False),
        ("DELETE FROM item", "SELECT 3", False),
        ("ATTACH 'x.db' AS x", "SELECT 3", False),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n", "SELECT 3", False),
        ("SELECT zeroblob(1000000000)", "SELECT 3", False),
    ],
)
def test_a_query_is_judged_by_its_rows(*, grade: Grade, shop: Path, query: str, reference: str, is_right: bool) -> None:
    options = {"database": str(shop.parent / "{db}.sqlite"), "timeout_s": "0.3"}
    verdict = grade("sql", {"answer": reference, "db": "shop"}, query, **options)
    assert verdict.is_success is is_right
    with sqlite3.connect(shop) as database:
        assert database.execute("SELECT count(*) FROM item").fetchone() == (3,)
    assert not (shop.parent / "x.db").exists()


@pytest.mark.parametrize(
    ("name", "fields", "options", "message"),
    [
        ("sql", {"answer": "SELECT nonsense"}, {"database": "shop.sqlite"}, "does not run"),
        ("sql", {"answer": "SELECT 1; SELECT 2"}, {"database": "shop.sqlite"}, "does not run"),
        ("numeric", {"answer": "none"}, {}, "holds no number"),
        ("regex", {"pattern": "(?<=look)behind"}, {}, "cannot be compiled"),
        ("code", {"tests": []}, {}, "holds no test"),
    ],
)
def test_a_task_that_cannot_be_graded_is_no_failure_of_the_agent(
    grade: Grade, name: str, fields: dict[str, Any], options: dict[str, str], message: str
) -> None:
    with pytest.raises(GradingError, match=message):
        grade(name, fields, "1", **options)


def test_each_test_of_a_list_counts(grade: Grade) -> None:
    tests = ["assert f(1) == 1", "assert f(2) == 4", "f('x')"]
    verdict = grade("code", {"tests": tests}, "Here it is:\n```python\ndef f(x):\n    return x * x\n```")
    assert (verdict.score, verdict.is_success) == (2 / 3, False)
    assert "test 3: TypeError" in str(verdict.evidence["failure"])
    human_eval = {"test": "def check(f):\n    assert f(3) == 9", "name": "f", "start": "import math"}
    answer = "def f(x):\n    return int(math.pow(x, 2))"
    options = {"tests": "test", "entry_point": "name", "prelude": "start"}
    assert grade("code", human_eval, answer, **options).is_success


FORKS = "import os, time\nfor _ in range(5): os.fork()\ntime.sleep(600)"


@pytest.mark.parametrize(
    ("answer", "timeout_s", "failure"),
    [
        ("import os; os._exit(0)", 60, "status 0"),
        ("import sys; sys.exit(0)", 60, "SystemExit"),
        ("x = bytearray(10**10)", 60, "MemoryError"),
        ("open('big', 'wb').write(bytes(30 << 20))", 60, ""),
        ("print('passed\\n' * 10**6)\nraise AssertionError", 60, "AssertionError"),
        ("def f(x: return 3", 60, "SyntaxError"),
        ("while True: pass", 0.7, "out of time"),
        (FORKS, 0.7, ""),
    ],
)
def test_code_that_misbehaves_passes_nothing(grade: Grade, answer: str, timeout_s: float, failure: str) -> None:
    verdict = grade("code", {"tests": "assert True"}, answer, timeout_s=str(timeout_s))
    assert (verdict.score, verdict.is_success) == (0.0, False)
    assert failure in str(verdict.evidence["failure"])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("excat", {}, "exact, json"),
        ("exact", {"expcted": "x"}, "expcted"),
        ("numeric", {"relative": "much"}, "relative"),
        ("sql", {}, "database"),
        ("rubric", {"model": "none", "criteria": "good: is it good"}, "not in spanloop.toml"),
        ("rubric", {"model": "none", "criteria": "good"}, "NAME: TEXT"),
    ],
)
def test_a_grader_that_cannot_be_made_is_one_error(
    tmp_path: Path, name: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_grader(name, options, GraderContext(tmp_path))
    assert message in str(caught.value)


@pytest.mark.slow
def test_generated_tasks_are_scored_by_their_generator(grade: Grade) -> None:
    pytest.importorskip("reasoning_gym")
    fields = {"question": "1 + 1", "answer": "2", "metadata": {"source_dataset": "chain_sum"}}
    assert grade("reasoning-gym", fields, "2").is_success
    assert not grade("reasoning-gym", fields, "3").is_success
    with pytest.raises(GradingError, match="cannot score"):
        grade("reasoning-gym", fields | {"metadata": {}}, "2")


@pytest.fixture
def own_graders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "own_graders.py").write_text(
        "from spanloop.evaluation.graders import Verdict\n"
        "def near(task, answer, within='1'):\n"
        "    return abs(float(answer) - task.fields['answer']) <= float(within)\n"
        "near.version, near.required_fields = '7', ('answer',)\n"
        "def long(task, answer):\n"
        "    return Verdict(len(answer), True, {'answer': answer})\n"
        "from pydantic import Field\n"
        "from spanloop.evaluation.graders import Grader\n"
        "class Within(Grader):\n"
        "    by: float = Field(default=0.0, ge=0)\n"
        "    def required_fields(self):\n"
        "        return ('answer',)\n"
        "    def grade(self, task, answer):\n"
        "        return float(abs(float(answer) - task.fields['answer']) <= self.by)\n"
        "def typed(task, answer, *, least: float):\n"
        "    return least\n"
        "async def later(task, answer):\n"
        "    return 1\n"
        "def only_task(task):\n"
        "    return 1\n"
        "class Answer:\n"
        "    pass\n"
        "def broken(task, answer):\n"
        "    return {'': 'good', 'x': float('nan'), 'y': 1e308, 'z': 10**400, 'v': Verdict(3e38, True, {})}[answer]\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield
    sys.modules.pop("own_graders", None)


@pytest.mark.usefixtures("own_graders")
def test_a_grader_of_ones_own(grade: Grade, tmp_path: Path) -> None:
    assert grade("own_graders:near", {"answer": 3}, "4").is_success
    assert not grade("own_graders:near", {"answer": 3}, "4", within="0.5").is_success
    loaded = load_grader("own_graders:near", {}, GraderContext(tmp_path))
    assert (loaded.version, loaded.required_fields) == ("7", ("answer",))
    assert len(load_grader("own_graders:long", {}, GraderContext(tmp_path)).version) == 8
    verdict = grade("own_graders:long", {}, "x" * 10_000)
    assert verdict.score == 10_000.0
    assert len(str(verdict.evidence["answer"])) < 3_000
    for answer, message in (("x", "finite"), ("", "returned str"), ("y", "1e12"), ("z", "too large"), ("v", "1e12")):
        with pytest.raises(GradingError, match=message):
            grade("own_graders:broken", {}, answer)


def test_every_grader_is_described() -> None:
    for listed in GRADER_POINT.listed():
        assert listed.help
        assert not listed.problem
        assert all(option.help for option in listed.options), listed.name
        assert GRADER_POINT.find_class(listed.name).version


@pytest.mark.usefixtures("own_graders")
@pytest.mark.parametrize(
    ("reference", "options", "message"),
    [
        ("own_graders:near", {"withn": "2"}, "there is no option 'withn' (got '2'); did you mean 'within'"),
        ("own_graders:typed", {}, "option 'least' is required"),
        ("own_graders:typed", {"least": "much"}, "option 'least' is 'much', expected a valid number"),
        ("own_graders:Within", {"by": "-1"}, "option 'by' is '-1', expected greater than or equal to 0"),
        ("own_graders:later", {}, "is a coroutine function"),
        ("own_graders:only_task", {}, "takes (task), expected (task, answer), then options by name"),
        ("own_graders:Answer", {}, "is Answer, expected a callable or a subclass of Grader"),
    ],
)
def test_options_of_a_grader_of_ones_own_are_checked_before_an_agent_runs(
    tmp_path: Path, reference: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_grader(reference, options, GraderContext(tmp_path))
    assert message in str(caught.value)


@pytest.mark.usefixtures("own_graders")
def test_a_grader_of_ones_own_is_a_class_like_the_built_in_ones(grade: Grade, tmp_path: Path) -> None:
    assert grade("own_graders:Within", {"answer": 3}, "5", by="2").is_success
    assert not grade("own_graders:Within:by=1", {"answer": 3}, "5").is_success
    loaded = load_grader("own_graders:Within", {}, GraderContext(tmp_path))
    assert (loaded.name, loaded.required_fields, len(loaded.version)) == ("own_graders:Within", ("answer",), 8)
    assert grade("own_graders:typed:least=0.5", {}, "abc").score == 0.5
