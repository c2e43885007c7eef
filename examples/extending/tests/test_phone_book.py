"""A folder of cards becomes tasks, and answers are graded by their beginning."""

from pathlib import Path

from spanloop.evaluation.graders import GraderContext, load_grader
from spanloop.evaluation.tasks import read_tasks


def test_cards_are_tasks_and_the_beginning_of_an_answer_counts(tmp_path: Path) -> None:
    (tmp_path / "ada.txt").write_text("12345\n")
    (task,) = read_tasks(f"phone-book:{tmp_path}")
    assert (task.id, task.fields["answer"]) == ("ada", "12345")
    grader = load_grader("starts-with", {"least": "0.5"}, GraderContext(tmp_path))
    verdicts = [grader.grade(task, answer) for answer in ("12345", "1239", "9")]
    assert [(verdict.score, verdict.is_success) for verdict in verdicts] == [(1.0, True), (0.6, True), (0.0, False)]
