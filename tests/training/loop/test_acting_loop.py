"""A loop whose agent acts in an environment, which judges every attempt."""

import shutil
from pathlib import Path

import pytest

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Promotion
from spanloop.store import Store
from spanloop.training.loop.app_file import read_app
from spanloop.training.loop.checks import check_app
from spanloop.training.loop.loop import Loop, LoopOrder
from spanloop.training.loop.rounds import LoopRounds
from spanloop.training.models.registry import Registry

from ..gateway_stand_in import GatewayStandIn
from .support import APP, EVALUATION_TASKS, Progress, Scheduler, write_model_folder

ENVIRONMENTS = Path(__file__).parents[2] / "evaluation" / "environments"
AGENT = """
import os
from spanloop.instrumentation import environment

def solve(task):
    with environment() as world:
        while not world.done and os.environ["OPENAI_MODEL"] in task["solvers"]:
            world.step("add", {"number": 1})
"""
ENVIRONMENT = '[environment]\nname = "troublesome:Counter"\noptions = {goal = 1}\n'


@pytest.fixture
def app(place: Path) -> Path:
    (place / "solver.py").write_text(AGENT)
    shutil.copy(ENVIRONMENTS / "troublesome.py", place)
    (place / "app.toml").write_text(APP.replace('grader = "exact"\n', "") + ENVIRONMENT)
    return place / "app.toml"


@pytest.mark.slow
@pytest.mark.usefixtures("environment")
def test_a_round_is_made_in_the_environment_which_judges(
    data_dir: DataDir, store: Store, app: Path, gateway: GatewayStandIn, scheduler: Scheduler
) -> None:
    Registry(data_dir).add("m", write_model_folder(app.parent / "weights"))
    checked = check_app(data_dir, read_app(app), Promotion(max_tasks=25), store)
    end = Loop(data_dir, store, checked, Progress()).run(LoopOrder())
    (first,) = end.rounds
    assert (first.champion, first.candidate, first.outcome, gateway.served) == ("m@v1", "m@v2", "promoted", "m@v2")
    assert len(scheduler.jobs) == 1
    attempts = store.connection.query("SELECT model, reward, grader, evidence FROM attempts FINAL", doing="reading")
    judged = {row["model"]: row for row in attempts.to_dicts()}
    assert attempts.filter(attempts["model"] == "m@v2")["reward"].to_list() == [1.0] * EVALUATION_TASKS
    assert (judged["m@v1"]["reward"], judged["m@v1"]["grader"]) == (0.0, "environment")
    assert '"reason": "The goal is reached."' in judged["m@v2"]["evidence"]


@pytest.mark.usefixtures("environment")
def test_an_environment_that_cannot_be_used_starts_nothing(data_dir: DataDir, store: Store, app: Path) -> None:
    Registry(data_dir).add("m", write_model_folder(app.parent / "weights"))
    app.write_text(app.read_text().replace("Counter", "Kounter"))
    with pytest.raises(ConfigurationError, match=r"Environment 'troublesome:Kounter' cannot be used: .*imported"):
        check_app(data_dir, read_app(app), Promotion(max_tasks=25), store)


@pytest.mark.usefixtures("environment")
def test_an_environment_that_never_answers_starts_nothing(data_dir: DataDir, store: Store, app: Path) -> None:
    Registry(data_dir).add("m", write_model_folder(app.parent / "weights"))
    for name in ("train", "test"):
        file = app.parent / f"{name}.jsonl"
        file.write_text(file.read_text().replace('"answer"', '"do": "hang at reset", "answer"'))
    app.write_text(app.read_text() + "check_timeout_s = 0.5\n")
    with pytest.raises(ConfigurationError, match=r"task 'train/1', seed 0.*did not answer reset within 0.5 s"):
        check_app(data_dir, read_app(app), Promotion(max_tasks=25), store)
    assert LoopRounds(data_dir).list() == ()
    assert not list(data_dir.runs.glob("*"))
