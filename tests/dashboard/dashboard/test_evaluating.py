"""Evaluations by button: the plan before one starts, its progress, and what a visitor may."""

import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest

from spanloop.dashboard.view_models.evaluation_plan import plan_rows
from spanloop.foundation.keys.users import Role
from spanloop.foundation.paths import DataDir
from spanloop.training.evaluations.evaluation_api import EvaluationApi
from spanloop.training.evaluations.plan import EvaluationPlan
from spanloop.training.jobs.states import JobState
from spanloop.training.promotion.aliases import Aliases
from spanloop.training.spec.stored_spec import EvaluationSpec

from ...training.gateway_stand_in import GatewayStandIn, gateway_stand_in
from .dashboard_driver import button, open_page, table, tables, text_of
from .test_actions import as_visitor

AGENT = "import os\n\ndef solve(task):\n    return os.environ['OPENAI_MODEL']\n"


@pytest.fixture
def gateway(learned_environment: DataDir) -> Iterator[GatewayStandIn]:
    Aliases(learned_environment).set("demo@v1", "champion")
    with gateway_stand_in(learned_environment) as stand_in:
        stand_in.served = "demo@v1"
        yield stand_in


@pytest.fixture
def configured(learned_environment: DataDir, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    """A data directory whose spanloop.toml says how the agent attempts four tasks."""
    folder = learned_environment.path
    tasks = [json.dumps({"id": f"task-{number}", "number": number, "answer": "yes"}) for number in range(4)]
    (folder / "tasks.jsonl").write_text("\n".join(tasks))
    (folder / "solver.py").write_text(AGENT)
    (folder / "spanloop.toml").write_text(
        f'[evaluation]\ntasks = "{folder}/tasks.jsonl"\nagent = "solver:solve"\ngrader = "exact"\ncwd = "{folder}"\n'
    )
    monkeypatch.chdir(folder)
    return learned_environment


def open_form(version: str = "demo@v3") -> AppTest:
    app = open_page("models", model=version)
    button(app, "Evaluate").click().run()
    assert not app.exception
    return app


def plan_of(app: AppTest) -> dict[str, str]:
    drawn = (dict(table(app, number).select(pl.nth(0, 1)).rows()) for number in range(len(tables(app))))
    return next(rows for rows in drawn if "takes at most" in rows)


@pytest.mark.usefixtures("gateway")
def test_an_evaluation_is_planned_before_it_starts(configured: DataDir) -> None:
    app = open_form()
    text = text_of(app)
    assert "The gateway serves the versions in turns meanwhile" in text
    rows = plan_of(app)
    assert rows["versions"] == "demo@v3, demo@v1"
    assert rows["tasks"] == f"4 from {configured.path}/tasks.jsonl"
    assert rows["agent"] == "solver:solve"
    assert not button(app, "Start it").disabled
    assert EvaluationApi(configured).list() == ()


@pytest.mark.usefixtures("gateway")
def test_an_open_evaluation_is_watched_and_refuses_another_one(configured: DataDir) -> None:
    job = EvaluationApi(configured).submit(EvaluationSpec(versions=("demo@v3", "demo@v1")))
    app = open_page("jobs", job=job.id)
    assert not app.exception
    text = text_of(app)
    assert "evaluation of **demo@v3** and **demo@v1**" in text
    assert button(app, "Cancel this job")
    row = table(open_page("jobs")).row(0, named=True)
    assert (row["kind"], row["base"], row["steps"], row["job"]) == ("evaluation", "demo@v3", "", job.id)
    assert f"{job.id} evaluates demo@v3, demo@v1 already (queued)." in text_of(open_form("demo@v2")).replace("\\", "")
    button(app, "Cancel this job").click().run()
    assert EvaluationApi(configured).get(job.id).state is JobState.CANCELLED


@pytest.mark.usefixtures("gateway")
def test_where_no_file_names_the_agent_the_form_says_what_to_write() -> None:
    text = text_of(open_form()).replace("\\", "")
    assert "No file says how the agent attempts tasks. Write [evaluation] with tasks and agent" in text


@pytest.mark.usefixtures("configured")
def test_without_a_gateway_the_form_says_so() -> None:
    assert "does not run" in text_of(open_form())


@pytest.mark.usefixtures("gateway", "configured")
def test_a_viewer_cannot_start_an_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    as_visitor(monkeypatch, "vic", Role.VIEWER)
    assert [element.label for element in open_page("models", model="demo@v3").button] == []


def test_a_plan_counts_only_the_attempts_that_are_missing(tmp_path: Path) -> None:
    plan = EvaluationPlan(
        tasks=10,
        rejected=2,
        rejections=(),
        source=f"{tmp_path}/tasks.jsonl",
        agent="python app.py",
        grader="",
        attempts=3,
        parallel=4,
        timeout_s=60.0,
        attempted=("m@v1",),
    )
    rows = plan_rows(plan, EvaluationSpec(versions=("m@v2", "m@v1")))
    assert rows["attempts"] == "30 of each version, 4 at a time"
    assert rows["takes at most"] == "8 min 00 s"
    assert rows["graded by"] == "the agent itself"
    assert rows["attempted already"].startswith("m@v1")
