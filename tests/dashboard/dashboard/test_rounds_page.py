"""The rounds of a loop: its table, the running step with the time left, the steps of a round."""

from datetime import UTC, datetime, timedelta

from spanloop.dashboard.view_models.rounds import running_text
from spanloop.foundation.paths import DataDir
from spanloop.training.loop.rounds import LoopRounds, RoundOutcome, StepName, StepRecord
from spanloop.training.run.job_api import JobApi, JobSpec, LoopFile, ScheduleSettings

from .dashboard_driver import open_page, table, text_of

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def seed(data_dir: DataDir) -> LoopRounds:
    """A decided round, and one that trains."""
    rounds = LoopRounds(data_dir, clock=lambda: NOW)
    first = rounds.begin("shop", "shop@v1")
    measured = {"success": [0.25, 0.125, 0.375], "tasks": 40}
    for name, seconds, result in (
        (StepName.MEASURE, 60.0, measured),
        (StepName.COLLECT, 200.0, {"attempts": 160}),
        (StepName.TRAIN, 120.0, {"job": "sft-1", "candidate": "shop@v2"}),
        (StepName.TEST, 50.0, measured | {"success": [0.75, 0.625, 0.875]}),
        (StepName.DECIDE, 4.0, {"outcome": "promoted", "reason": "better"}),
    ):
        rounds.record(first, StepRecord(name, seconds, 1_000, "", result), candidate="shop@v2")
    rounds.end(first, RoundOutcome.PROMOTED, "better")
    second = rounds.begin("shop", "shop@v2")
    rounds.record(second, StepRecord(StepName.MEASURE, 1.0, 0, "", measured))
    rounds.record(second, StepRecord(StepName.COLLECT, 210.0, 0, "", {"attempts": 160}))
    rounds.record(second, StepRecord(StepName.TRAIN, began_at=(NOW - timedelta(seconds=30)).isoformat()))
    return rounds


def test_the_page_lists_rounds_and_the_steps_of_the_newest(stopped: DataDir) -> None:
    seed(stopped)
    app = open_page("rounds")
    assert not app.exception
    rows = table(app)
    assert rows["outcome"].to_list() == ["▶ open", "✓ promoted"]
    assert (rows["success"][1], rows["its_success"][1]) == ("25 % [12, 38]", "75 % [62, 88]")
    assert table(app, 1)["step"].to_list()[-1] == "3 of 5: train"
    assert "Round 2 of shop, step 3 of 5: train" in text_of(app)


def test_time_left_is_by_earlier_rounds(stopped: DataDir) -> None:
    rounds = seed(stopped).list()
    assert running_text(rounds, rounds[1], NOW) == (
        "Round 2 of shop, step 3 of 5: train, for 30 s; about 2 min 24 s left of the round"
    )
    assert running_text(rounds[1:], rounds[1], NOW).endswith("train, for 30 s")


def test_without_a_round_it_says_how_to_begin(stopped: DataDir) -> None:
    assert stopped.path.is_dir()
    text = text_of(open_page("rounds"))
    assert "No round yet." in text
    assert "spanloop init" in text


def test_schedules_that_begin_rounds_are_shown(stopped: DataDir) -> None:
    seed(stopped)
    loop = LoopFile(path="/srv/shop/app.toml", model="shop")
    spec = JobSpec.of(kind="sft", base="shop", steps=2)
    JobApi(stopped).schedule(spec, cron="0 3 * * *", settings=ScheduleSettings(loop=loop))
    app = open_page("rounds")
    assert not app.exception
    assert "Schedules that begin rounds" in text_of(app)
    (row,) = table(app, 2).to_dicts()
    assert (row["trigger"], row["file"], row["model"]) == ("cron 0 3 * * *", "/srv/shop/app.toml", "shop")
    app = open_page("jobs", jobs_view="Schedules")
    assert table(app)["kind"].to_list() == ["a round of /srv/shop/app.toml"]
