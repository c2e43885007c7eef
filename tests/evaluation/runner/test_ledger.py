"""The ledger: an attempt ends once, whatever happens between two of its transactions."""
# pyright: reportPrivateUsage=false

import random
from collections import Counter
from pathlib import Path

import pytest

from spanloop.evaluation.graders import Verdict
from spanloop.evaluation.runner.attempt import AttemptEnd, EndedAttempt, EndState, TaskAttempt
from spanloop.evaluation.runner.erasing import erase_answers
from spanloop.evaluation.runner.ledger import AttemptState, Counts, Ledger
from spanloop.evaluation.tasks import Task
from spanloop.foundation.errors import AlreadyRunningError, ConfigurationError, DataDirectoryError

FINISHED = AttemptEnd(EndState.FINISHED, 1, 2, "the answer")


def tasks(count: int) -> list[Task]:
    return [Task(f"t{number}", {"n": number}, f"digest {number}") for number in range(count)]


def filled(folder: Path, *, count: int = 2, attempts: int = 2) -> Ledger:
    ledger = Ledger(folder)
    ledger.add_tasks(tasks(count))
    ledger.add_attempts(attempts)
    return ledger


def claim_all(ledger: Ledger, seed: int = 0) -> list[TaskAttempt]:
    return list(iter(lambda: ledger.claim(seed), None))


def test_first_attempts_at_all_tasks_come_first_each_with_its_own_seed_and_episode(tmp_path: Path) -> None:
    with filled(tmp_path / "a") as ledger:
        claimed = claim_all(ledger)
    assert [(each.task.id, each.number) for each in claimed] == [("t0", 1), ("t1", 1), ("t0", 2), ("t1", 2)]
    assert claimed[1].task == tasks(2)[1]
    assert len({each.episode_id for each in claimed}) == len({each.seed for each in claimed}) == 4
    assert all(0 <= each.seed < 2**31 for each in claimed)
    with filled(tmp_path / "b") as again, filled(tmp_path / "c") as other:
        assert [each.seed for each in claim_all(again)] == [each.seed for each in claimed]
        assert not {each.seed for each in claim_all(other, seed=1)} & {each.seed for each in claimed}


def test_an_attempt_that_was_running_is_made_again_under_another_episode(tmp_path: Path) -> None:
    with filled(tmp_path / "run", count=1, attempts=1) as ledger:
        first = ledger.claim(0)
    with Ledger(tmp_path / "run") as ledger:
        assert ledger.claim(0) is None
        assert ledger.recover() == 1
        second = ledger.claim(0)
        assert first is not None
        assert second is not None
        assert second.interrupted == (first.episode_id,)
        assert (second.seed, second.task) == (first.seed, first.task)
        with pytest.raises(RuntimeError, match="another state"):
            ledger.end(first, FINISHED)
        ledger.release(second)
        third = ledger.claim(0)
        assert third is not None
        assert third.interrupted == (first.episode_id, second.episode_id)
        ledger.end(third, FINISHED)
        with pytest.raises(RuntimeError, match="another state"):
            ledger.end(third, FINISHED)
        assert ledger.recover() == 0
        (ended,) = ledger.in_state(AttemptState.ENDED, limit=10)
    assert (ended.attempt, ended.end) == (third, FINISHED)


def test_what_could_not_be_graded_is_graded_again_and_more_attempts_may_follow(tmp_path: Path) -> None:
    verdict = Verdict(1.0, True, {"answer": "x"})
    with filled(tmp_path / "run") as ledger:
        for attempt in claim_all(ledger):
            ledger.end(attempt, FINISHED)
        first, *others = ledger.in_state(AttemptState.ENDED, limit=10)
        ledger.grade(first._replace(verdict=verdict))
        for other in others:
            ledger.grade(other._replace(grading_error="the judge is down"))
        ledger.mark_stored([first.attempt, others[0].attempt])
        assert [each.verdict for each in ledger.in_state(AttemptState.STORED, limit=10)] == [verdict, None]
    with Ledger(tmp_path / "run") as ledger:
        ledger.recover()
        ledger.add_attempts(3)
        assert len(ledger.in_state(AttemptState.ENDED, limit=10)) == 3
        assert ledger.counts() == Counts(total=6, done=1)
        assert len(claim_all(ledger)) == 2
        summary = ledger.summary()
    assert (summary.attempts, summary.states, summary.graded) == (6, {"finished": 4}, 1)
    assert (summary.successes, summary.score_sum, summary.grading_failures) == (1, 1.0, 0)


def test_a_verdict_of_an_earlier_version_out_of_range_is_a_failed_grading(tmp_path: Path) -> None:
    with filled(tmp_path / "run", count=1, attempts=1) as ledger:
        (attempt,) = claim_all(ledger)
        ledger.end(attempt, FINISHED)
        ledger.grade(EndedAttempt(attempt, FINISHED, Verdict(1e308, True, {})))
        (graded,) = ledger.in_state(AttemptState.GRADED, limit=10)
    assert graded.verdict is None
    assert graded.grading_error == "The score is 1e+308, expected a finite number between -1e12 and 1e12."


def test_one_process_at_a_time_and_one_run_of_a_name(tmp_path: Path) -> None:
    with filled(tmp_path / "run") as ledger:
        ledger.adopt({"agent": "a", "model": "m@v0"})
        ledger.adopt({"agent": "a", "model": "m@v1"})  # nothing was started: it may still change
        assert not ledger.has_tasks
        ledger.add_tasks(tasks(1))
        ledger.add_attempts(1)
        ledger.claim(0)
        with pytest.raises(AlreadyRunningError, match="'run' is running"):
            Ledger(tmp_path / "run")
    with Ledger(tmp_path / "run") as ledger:
        ledger.adopt({"agent": "a", "model": "m@v1"})
        with pytest.raises(ConfigurationError, match="has model 'm@v1', and this command 'm@v2'"):
            ledger.adopt({"agent": "a", "model": "m@v2"})


def test_tasks_that_cannot_be_read_to_their_end_are_not_added(tmp_path: Path) -> None:
    def broken() -> object:
        yield tasks(1)[0]
        raise ConfigurationError("the disk of the tasks is gone")

    with Ledger(tmp_path / "run") as ledger:
        with pytest.raises(ConfigurationError, match="gone"):
            ledger.add_tasks(broken())  # type: ignore[arg-type]
        assert not ledger.has_tasks
        ledger.add_tasks(tasks(2))
        assert ledger.has_tasks


def test_a_forgotten_answer_leaves_the_file_and_the_score_stays(tmp_path: Path) -> None:
    secret = "a secret of hers" * 100
    with filled(tmp_path / "runs" / "run") as ledger:
        first, second, *_ = claim_all(ledger)
        for attempt in (first, second):
            answer = secret if attempt is first else "kept"
            end = AttemptEnd(EndState.FINISHED, 1, 2, answer)
            ledger.end(attempt, end)
            ledger.grade(EndedAttempt(attempt, end, Verdict(0.5, True, {"answer": answer})))
        with pytest.raises(AlreadyRunningError):
            erase_answers(tmp_path / "runs", {first.episode_id})
    assert erase_answers(tmp_path / "runs", {first.episode_id, "unknown"}) == 1
    with Ledger(tmp_path / "runs" / "run") as ledger:
        erased, kept = ledger.in_state(AttemptState.GRADED, limit=10)
        assert (erased.end.answer, erased.verdict) == ("", Verdict(0.5, True, {}))
        assert (kept.end.answer, kept.verdict) == ("kept", Verdict(0.5, True, {"answer": "kept"}))
        assert not [path for path in (tmp_path / "runs" / "run").iterdir() if secret.encode() in path.read_bytes()]


def test_a_full_disk_is_one_error_and_the_ledger_stays(tmp_path: Path) -> None:
    with filled(tmp_path / "run") as ledger:
        attempt = ledger.claim(0)
        assert attempt is not None
        pages = ledger._database.execute("PRAGMA page_count").fetchone()[0]
        ledger._database.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(DataDirectoryError, match="full"):
            ledger.end(attempt, FINISHED._replace(answer="x" * 1_000_000))
        ledger._database.execute("PRAGMA max_page_count = 1000000")
        ledger.end(attempt, FINISHED)


@pytest.mark.parametrize("seed", range(3))
def test_each_attempt_ends_once_in_any_order_of_steps_and_crashes(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    ends: Counter[tuple[str, int]] = Counter()
    starts: Counter[tuple[str, int]] = Counter()
    ledger = filled(tmp_path / "run", count=6, attempts=3)
    running: list[TaskAttempt] = []
    while len(stored := ledger.in_state(AttemptState.STORED, limit=100)) < 18:
        step = chance.choice(["claim", "claim", "end", "release", "grade", "store", "crash"])
        if step == "claim" and (attempt := ledger.claim(0)) is not None:
            running.append(attempt)
            starts[attempt.task.id, attempt.number] += 1
        elif step in {"end", "release"} and running:
            attempt = running.pop(chance.randrange(len(running)))
            if step == "release":
                ledger.release(attempt)
                continue
            ledger.end(attempt, FINISHED)
            ends[attempt.task.id, attempt.number] += 1
        elif step == "grade":
            for ended in ledger.in_state(AttemptState.ENDED, limit=2):
                ledger.grade(ended)
        elif step == "store":
            ledger.mark_stored(each.attempt for each in ledger.in_state(AttemptState.GRADED, limit=2))
        elif step == "crash":
            ledger.__exit__()
            running = []
            ledger = Ledger(tmp_path / "run")
            ledger.recover()
    ledger.__exit__()
    assert set(ends.values()) == {1}
    assert len(ends) == 18
    assert all(
        starts[each.attempt.task.id, each.attempt.number] == len(each.attempt.interrupted) + 1 for each in stored
    )
    episodes = [episode for each in stored for episode in (each.attempt.episode_id, *each.attempt.interrupted)]
    assert len(set(episodes)) == len(episodes)
