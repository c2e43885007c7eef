"""Jobs, the form that really submits one, schedules and models."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from spanloop.dashboard.view_models.formatting import DASH
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.jobs.schedules.outcome import TickOutcome
from spanloop.training.jobs.schedules.schedule_ticks import Decision, run_due_ticks
from spanloop.training.jobs.states import JobState
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import Device, JobApi, JobSpec
from spanloop.training.spec.fields import spec_fields
from spanloop.training.spec.stored_spec import parse_spec

from ...training.recipe_kinds import KINDS, flat_value
from .dashboard_driver import follow, links, open_page, table, text_of
from .dashboard_seeding import Seeded, model_folder, seed_metrics


@pytest.fixture
def with_model(stopped: DataDir, tmp_path: Path) -> DataDir:
    """A data directory with one registered model and no ClickHouse: jobs do not need one."""
    Registry(stopped).add("tiny", model_folder(tmp_path / "tiny"))
    return stopped


def open_form() -> AppTest:
    return open_page("jobs", jobs_view="New job")


def test_the_form_submits_a_job(with_model: DataDir) -> None:
    app = open_form()
    app.number_input(key="steps").set_value(3)
    app.number_input(key="learning_rate").set_value(2e-5)
    app.toggle(key="deploy").set_value(True)
    app.text_input(key="task_ids").set_value("t1, t2")
    app.text_input(key="task_prefix").set_value("train-")
    app.toggle(key="pause_serving").set_value(True)
    app.number_input(key="group_size").set_value(4)
    app.number_input(key="max_prompt_tokens").set_value(1024)
    app.number_input(key="max_response_tokens").set_value(256)
    app.button(key="submit").click().run()
    assert not app.exception
    assert not app.error
    (job,) = JobApi(with_model).list()
    assert job.state is JobState.QUEUED
    assert (job.spec.kind, job.spec.base, job.spec.optimiser.steps, job.spec.run.deploy) == (
        "dr_grpo",
        "tiny@v1",
        3,
        True,
    )
    assert job.spec.optimiser.learning_rate == pytest.approx(2e-5)
    assert job.spec.episodes.task_ids == ("t1", "t2")
    assert (job.spec.run.pause_serving, job.spec.episodes.task_prefix, flat_value(job.spec, "group_size")) == (
        True,
        "train-",
        4,
    )
    assert (job.spec.episodes.max_prompt_tokens, job.spec.episodes.max_response_tokens) == (1024, 256)
    assert app.query_params["job"] == job.id
    assert app.title[0].value == "Job"


def test_the_form_says_where_and_on_what_a_job_trains(with_model: DataDir) -> None:
    app = open_form()
    app.selectbox(key="device").set_value(Device.CPU)
    app.text_input(key="ray_address").set_value(" 10.0.0.1:6379 ")
    app.number_input(key="max_attempts").set_value(1)
    app.datetime_input(key="since").set_value(datetime(2026, 11, 1, 12, 0))  # noqa: DTZ001 (what the widget gives)
    app.button(key="submit").click().run()
    assert not app.exception
    (job,) = JobApi(with_model).list()
    assert (job.spec.run.device, job.spec.run.ray_address, job.spec.run.max_attempts) == (
        Device.CPU,
        "10.0.0.1:6379",
        1,
    )
    assert job.spec.episodes.since == datetime(2026, 11, 1, 12, 0, tzinfo=UTC)


def widget_names(app: AppTest) -> set[str]:
    kinds = (app.number_input, app.text_input, app.selectbox, app.toggle, app.datetime_input, app.button_group)
    return {str(widget.key) for widgets in kinds for widget in widgets}


@pytest.mark.usefixtures("with_model")
def test_the_form_has_every_setting_of_its_kind() -> None:
    app = open_form()
    for kind in KINDS:
        app.button_group(key="kind").set_value(kind).run()
        assert not app.exception
        settings = {field.name for field in spec_fields() if kind in field.recipes}
        assert widget_names(app) - {"jobs_view", "when"} == settings


@pytest.mark.usefixtures("with_model")
def test_the_form_names_recipes_and_hardware_as_people_do() -> None:
    app = open_form()
    shown = {str(group.key): [str(option) for option in group.options] for group in app.button_group}
    assert shown["kind"] == ["Dr. GRPO", "GRPO", "RLOO", "GSPO", "REINFORCE++", "PPO", "SFT", "DPO"]
    assert shown["preset"] == ["any", "CPU", "one GPU of 24 GB", "one GPU", "eight GPUs"]


def test_a_form_left_as_it_is_has_the_defaults_of_a_spec(with_model: DataDir) -> None:
    app = open_form()
    app.button(key="submit").click().run()
    (job,) = JobApi(with_model).list()
    assert job.spec == JobSpec.of(kind="dr_grpo", base="tiny@v1")


def test_a_form_has_the_defaults_of_the_kind_that_was_chosen_last(with_model: DataDir) -> None:
    for kind in ("rloo", "sft"):
        app = open_form()
        app.button_group(key="kind").set_value("grpo").run()
        app.button_group(key="kind").set_value(kind).run()
        app.button(key="submit").click().run()
        assert not app.exception
        assert JobApi(with_model).list()[0].spec == JobSpec.of(kind=kind, base="tiny@v1")


def test_a_preset_changes_what_the_form_shows_and_an_entry_wins(with_model: DataDir) -> None:
    app = open_form()
    app.button_group(key="preset").set_value("gpus8").run()
    assert app.number_input(key="gpus_per_node gpus8").value == 8
    app.number_input(key="gpus_per_node gpus8").set_value(4)
    app.button(key="submit").click().run()
    assert not app.exception
    assert JobApi(with_model).list()[0].spec == JobSpec.model_validate(
        {"base": "tiny@v1", "preset": "gpus8", "gpus_per_node": 4}
    )


def test_the_form_submits_supervised_training(with_model: DataDir) -> None:
    app = open_form()
    app.button_group(key="kind").set_value("sft").run()
    app.text_input(key="min_reward").set_value("0.5")
    app.button(key="submit").click().run()
    (job,) = JobApi(with_model).list()
    assert (job.spec.kind, flat_value(job.spec, "min_reward")) == ("sft", 0.5)


def test_wrong_values_are_named_and_nothing_is_submitted(with_model: DataDir) -> None:
    app = open_form()
    app.text_input(key="name").set_value("no spaces")
    app.number_input(key="learning_rate").set_value(0.0)
    app.button(key="submit").click().run()
    message = app.error[0].value.replace("\\", "")
    assert "- name: only letters, digits" in message
    assert "- learning_rate: Input should be greater than 0" in message
    assert JobApi(with_model).list() == ()


def test_a_cron_schedule_is_made_and_a_wrong_one_refused(with_model: DataDir) -> None:
    app = open_form()
    app.button_group(key="when").set_value("Repeatedly").run()
    app.text_input(key="cron").set_value("every night")
    app.button(key="submit").click().run()
    assert "'every night' is not a cron expression" in app.error[0].value
    assert JobApi(with_model).schedules() == ()
    app.text_input(key="cron").set_value("30 2 * * 1")
    app.button(key="submit").click().run()
    (schedule,) = JobApi(with_model).schedules()
    assert schedule.cron == "30 2 * * 1"
    assert app.query_params["jobs_view"] == "Schedules"


def test_a_schedule_that_waits_for_failures_is_made_with_a_budget(with_model: DataDir) -> None:
    app = open_form()
    app.button_group(key="when").set_value("Repeatedly").run()
    app.selectbox(key="trigger").set_value("Failures").run()
    app.text_input(key="failures").set_value("often")
    app.button(key="submit").click().run()
    assert "'often' is no condition on failures" in app.error[0].value
    app.text_input(key="failures").set_value("unknown_tool of planner above 5% of 40")
    app.text_input(key="budget").set_value("3 jobs/week")
    app.button(key="submit").click().run()
    (schedule,) = JobApi(with_model).schedules()
    assert schedule.trigger_text == "when unknown_tool of planner above 5% of the last 40 episodes"
    assert str(schedule.settings.budget) == "3 jobs/week"


def test_a_job_at_a_time_is_in_utc(with_model: DataDir) -> None:
    app = open_form()
    app.button_group(key="when").set_value("At a time").run()
    app.datetime_input(key="at").set_value(datetime(2030, 1, 2, 3, 0))  # noqa: DTZ001 (what the widget gives)
    app.button(key="submit").click().run()
    (schedule,) = JobApi(with_model).schedules()
    assert schedule.next_at == datetime(2030, 1, 2, 3, 0, tzinfo=UTC)


@pytest.mark.usefixtures("stopped")
def test_without_a_model_the_form_says_how_to_add_one() -> None:
    app = open_form()
    assert "nothing to train" in app.info[0].value
    assert str(app.code[0].value).startswith("spanloop models add NAME FOLDER")


def test_a_schedule_is_deleted(seeded: Seeded, seeded_environment: DataDir) -> None:
    assert seeded.episodes
    app = open_page("jobs", jobs_view="Schedules")
    assert list(table(app)["trigger"]) == ["cron 0 3 * * *", "once"]
    app = follow(links(app)[0])
    app.button(key="delete_schedule").click().run()
    assert not app.exception
    assert [schedule.cron for schedule in JobApi(seeded_environment).schedules()] == [None]


def test_a_schedule_shows_why_it_made_no_job_and_is_paused(seeded: Seeded, seeded_environment: DataDir) -> None:
    assert seeded.episodes
    api = JobApi(seeded_environment, clock=lambda: datetime(2030, 1, 1, tzinfo=UTC))
    schedule = api.schedules()[0]
    run_due_ticks(
        ControlDatabase(ControlPaths.of(seeded_environment)),
        lambda _: Decision(TickOutcome.SKIPPED, "no new trainable groups"),
        parse_spec,
        recurring=True,
        clock=lambda: datetime(2030, 1, 1, tzinfo=UTC),
    )
    app = open_page("jobs", jobs_view="Schedules")
    assert list(table(app)["last_tick"]) == ["skipped: no new trainable groups", DASH]
    app = follow(links(app)[0])
    app.button(key="pause_schedule").click().run()
    assert not app.exception
    assert api.get_schedule(schedule.id).paused_at is not None
    app.button(key="resume_schedule").click().run()
    assert api.get_schedule(schedule.id).paused_at is None


def test_the_list_opens_a_job_with_its_log(seeded: Seeded, seeded_environment: DataDir) -> None:
    assert seeded.episodes
    newest = JobApi(seeded_environment).list()[0]
    app = open_page("jobs")
    assert table(app)["job"][0] == newest.id
    app = follow(links(app)[0])
    assert app.query_params["job"] == newest.id
    assert "step 30 critic/rewards/mean 1.000" in text_of(app)


def test_a_job_s_page_draws_its_curves(seeded: Seeded, seeded_store: Store, seeded_environment: DataDir) -> None:
    assert seeded.episodes
    newest = JobApi(seeded_environment).list()[0]
    seed_metrics(seeded_store, newest.id, steps=3)
    text = text_of(open_page("jobs", job=newest.id))
    for title in ("batch reward", "entropy (nats)", "KL to the sampler (nats)", "gradient norm"):
        assert f"**{title}**" in text
    assert "clipped fraction" not in text
    assert text.index("**Curves**") < text.index("**Log**")


def test_a_job_is_cancelled_and_run_again(seeded: Seeded, seeded_environment: DataDir) -> None:
    assert seeded.episodes
    api = JobApi(seeded_environment)
    job = api.list()[0]
    app = open_page("jobs", job=job.id)
    app.button(key="cancel").click().run()
    assert api.get(job.id).state is JobState.CANCELLED
    app.button(key="retry").click().run()
    assert api.get(job.id).state is JobState.QUEUED
    assert not app.exception


@pytest.mark.usefixtures("stopped")
def test_an_unknown_job_is_a_message() -> None:
    app = open_page("jobs", job="nope")
    assert not app.exception
    assert "nope" in app.error[0].value


def test_models_show_lineage_and_what_is_served(seeded: Seeded, seeded_environment: DataDir) -> None:
    assert seeded.episodes
    with seeded_environment.announce("gateway", "http://127.0.0.1:1"):
        app = open_page("models")
        shown = table(app)
        assert list(shown["version"]) == ["shop-tiny@v1", "└ shop-tiny@v2", "\u2003└ shop-tiny@v3"]
        assert list(shown["served"]) == ["", "", "● served"]
        opened = open_page("models", model="shop-tiny@v2")
    assert not opened.button(key="deploy").disabled
    assert {metric.label: metric.value for metric in opened.metric}["Episodes"] == "20"


def test_a_deployment_that_fails_is_a_message(seeded: Seeded, seeded_environment: DataDir) -> None:
    assert seeded.episodes
    with seeded_environment.announce("gateway", "http://127.0.0.1:9"):
        app = open_page("models", model="shop-tiny@v2")
        app.button(key="deploy").click().run()
    assert not app.exception
    assert app.error


def test_nothing_can_be_deployed_without_a_gateway(seeded: Seeded) -> None:
    assert seeded.episodes
    app = open_page("models", model="shop-tiny@v2")
    assert app.button(key="deploy").disabled
    assert "the gateway does not run" in app.warning[0].value


def test_an_unknown_model_is_a_message(seeded: Seeded) -> None:
    assert seeded.episodes
    app = open_page("models", model="shop-tiny@v9")
    assert "shop-tiny@v9" in app.error[0].value
