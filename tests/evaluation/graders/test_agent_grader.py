"""The weighted reward of an attempt, with what its task says is expected."""

from pathlib import Path
from typing import Any

import pytest

from spanloop.converters.options import Options
from spanloop.converters.rewards import Attempt, NamedReward
from spanloop.evaluation.graders import GraderContext, GradingError, Verdict, load_grader
from spanloop.evaluation.tasks import Task
from spanloop.foundation.errors import ConfigurationError

from ...converters.converters.converters_world import OPENING, World, answers, asks, text, trace_id
from ...instrumentation.support import modelling, says

FIELDS: dict[str, Any] = {
    "answer": ["Oslo", "Kristiania"],
    "tools": ["search"],
    "steps": 2,
    "seconds": 60,
    "reference_calls": [{"name": "search", "arguments": {"query": "Norway"}}],
}


@pytest.fixture
def attempt() -> Attempt:
    """An attempt that finds the answer with one call."""
    world, seen, asked = World(), list(OPENING), asks("c1", "search", {"query": "Norway"})
    world.call(seen, asked, trace=trace_id("t"))
    seen += [asked, answers("c1", "Oslo")]
    world.call(seen, text("assistant", "Oslo"), trace=trace_id("t"))
    found: list[Attempt] = []
    world.convert(Options(reward_functions=(NamedReward("found", found.append),)))
    return found[0]


def verdict(attempt: Attempt, folder: Path, fields: dict[str, Any], **options: str) -> Verdict:
    names = {name.replace("__", "."): value for name, value in options.items()}
    grader = load_grader("agent", names, GraderContext(folder))
    assert grader.grade_attempt is not None
    return grader.grade_attempt(Task("t", fields, "d"), "Oslo", attempt)


def test_fields_of_the_task_say_what_is_expected(attempt: Attempt, tmp_path: Path) -> None:
    given = verdict(attempt, tmp_path, FIELDS, weights__tool_timing="1", weights__tool_success="0.5")
    assert given.is_success
    assert given.score == pytest.approx(1.0)
    components = given.evidence["components"]
    assert isinstance(components, dict)
    assert list(components) == [
        "completion",
        "tool_selection",
        "efficiency",
        "timing",
        "format",
        "tool_success",
        "tool_timing",
    ]
    assert given.evidence["reason"] == (
        "The reward is 1.00: tool_timing contributes most (+0.40), timing least (+0.04)."
    )
    wrong = verdict(attempt, tmp_path, {"answer": "Bergen", "tools": ["ask"], "steps": 1}, threshold="0.9")
    assert (wrong.is_success, wrong.score < 0.5) == (False, True)


def test_an_environment_counts_where_no_answer_is_expected(attempt: Attempt, tmp_path: Path) -> None:
    scored = Attempt(attempt.episode, attempt.scores._replace(value=0.0, breakdown={"environment": 0.0}))
    weights = {f"weights__{name}": "0" for name in ("tool_selection", "efficiency", "timing", "format")}
    assert verdict(scored, tmp_path, {}, **weights).score == 0.0
    assert verdict(attempt, tmp_path, {}, **weights).score == 1.0  # it ended with an answer


def test_fields_that_options_name_are_required_and_others_are_not(tmp_path: Path) -> None:
    context = GraderContext(tmp_path)
    assert load_grader("agent", {}, context).required_fields == ()
    assert load_grader("agent", {"expected": "capital", "steps": "n"}, context).required_fields == ("capital", "n")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"reference_calls": "search"}, "Field 'reference_calls' of task 't' is \"search\", expected a list of calls."),
        ({"steps": "many"}, "Fields of task 't' have another form: .*steps"),
        ({"tools": 3}, "Fields of task 't' have another form: .*tools"),
    ],
)
def test_a_field_of_another_form_is_named(
    attempt: Attempt, tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(GradingError, match=message):
        verdict(attempt, tmp_path, fields)


def test_a_model_marks_the_timing_where_a_task_has_no_reference(
    attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"model 'judge' is not in spanloop.toml; \[models\] has: none"):
        verdict(attempt, tmp_path, {}, timing_model="judge")
    weights = {f"weights__{name}": "0" for name in ("completion", "tool_selection", "efficiency", "timing", "format")}
    with modelling() as model:
        (tmp_path / "spanloop.toml").write_text(f'[models.judge]\nurl = "{model.url}"\nmodel = "m"\n')
        model.script = (says('{"timing": 0.25, "reason": "too early"}'), says("no idea"), says("no idea"))
        marked = verdict(attempt, tmp_path, {"q": 1}, timing_model="judge", weights__tool_timing="1", **weights)
        assert marked.score == 0.25
        assert verdict(attempt, tmp_path, FIELDS, timing_model="judge", weights__tool_timing="1", **weights).score == 1
        with pytest.raises(GradingError, match="'judge' gave no usable mark of the timing for task 't'"):
            verdict(attempt, tmp_path, {"q": 2}, timing_model="judge", weights__tool_timing="1", **weights)
