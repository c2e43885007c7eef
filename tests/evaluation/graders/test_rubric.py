"""The grader that asks a model, against a scripted one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spanloop.evaluation.graders import GraderContext, GradingError, Verdict, load_grader
from spanloop.evaluation.tasks import Task

from ...instrumentation.support import FakeModel, modelling, says

CRITERIA = "right: the answer is right; short: it is short"
GOOD = 'Sure: {"right": 1, "short": 0.5, "reason": "long"}'


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[FakeModel]:
    with modelling() as model:
        (tmp_path / "spanloop.toml").write_text(f'[models.judge]\nurl = "{model.url}"\nmodel = "m"\nmax_calls = 3\n')
        yield model


def grade(folder: Path, answer: str = "2", **options: str) -> Verdict:
    grader = load_grader("rubric", {"model": "judge", "criteria": CRITERIA, **options}, GraderContext(folder))
    return grader.grade(Task("t", {"question": "1+1"}, "d"), answer)


def test_the_score_is_the_mean_mark_and_the_marks_are_its_evidence(judge: FakeModel, tmp_path: Path) -> None:
    judge.script = (says(GOOD),)
    verdict = grade(tmp_path)
    assert (verdict.score, verdict.is_success) == (0.75, True)
    assert verdict.evidence["marks"] == {"right": 1.0, "short": 0.5}
    assert verdict.evidence["reason"] == "long"
    assert not grade(tmp_path, threshold="0.8").is_success
    (asked,) = judge.requests  # the second answer came from the cache
    prompt = asked["messages"][0]["content"]
    assert all(part in prompt for part in ('"question": "1+1"', "-----\n2\n-----", "- right: the answer is right"))


@pytest.mark.parametrize(
    "nonsense", ["I like it.", '{"right": 1}', '{"right": 7, "short": 0}', '{"right": true, "short": 1}']
)
def test_nonsense_is_asked_about_once_more(judge: FakeModel, tmp_path: Path, nonsense: str) -> None:
    judge.script = (says(nonsense), says(GOOD))
    assert grade(tmp_path).score == 0.75
    assert "could not be read" in judge.requests[1]["messages"][0]["content"]


def test_nonsense_twice_is_no_verdict(judge: FakeModel, tmp_path: Path) -> None:
    judge.script = (says("I like it."),)
    with pytest.raises(GradingError, match="no usable marks for task 't'"):
        grade(tmp_path)


def test_a_budget_that_is_spent_is_no_verdict(judge: FakeModel, tmp_path: Path) -> None:
    judge.script = (says(GOOD),)
    for answer in ("1", "2", "3"):
        grade(tmp_path, answer)
    with pytest.raises(GradingError, match="budget"):
        grade(tmp_path, "4")
