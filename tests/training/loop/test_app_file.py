"""An ``app.toml``: what is read from it, and what is refused before anything starts."""

from pathlib import Path

import pytest

from spanloop.foundation.errors import ConfigurationError
from spanloop.training.loop.app_file import UNKNOWN, read_app

from .support import APP

EXAMPLES = Path(__file__).parents[3] / "examples"


def write(folder: Path, *changes: tuple[str, str], extra: str = "") -> Path:
    text = APP
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "app.toml").write_text(text + extra)
    return folder / "app.toml"


def test_a_file_names_agent_tasks_trainings_rule_and_budget(tmp_path: Path) -> None:
    extra = "[budget]\ntokens = 5\n[[train]]\nkind = 'dr_grpo'\nsteps = 7\n"
    app = read_app(write(tmp_path, extra=extra))
    assert (app.model.name, app.run.agent, app.run.grader, app.run.cwd) == ("m", "solver:solve", "exact", tmp_path)
    assert [(spec.kind, spec.base, spec.steps) for spec in app.train] == [("sft", "m", 2), ("dr_grpo", "m", 7)]
    assert [app.training(number).kind for number in (1, 2, 3)] == ["sft", "dr_grpo", "dr_grpo"]
    assert app.promotion is not None
    assert (app.promotion.max_tasks, app.budget.tokens) == (25, 5)


def test_the_evaluation_has_the_agent_of_the_run_and_tasks_of_its_own(tmp_path: Path) -> None:
    app = read_app(write(tmp_path, ("parallel = 1", "parallel = 1\nattempts = 4\nlimit = 3")))
    assert (app.run.attempts, app.run.limit) == (4, 3)
    evaluation = app.evaluation
    assert (evaluation.tasks, evaluation.agent, evaluation.grader) == ("test.jsonl", "solver:solve", "exact")
    assert (evaluation.attempts, evaluation.limit, evaluation.parallel, evaluation.cwd) == (1, None, 1, tmp_path)


def test_runners_of_the_pool_make_attempts_that_no_budget_limits(tmp_path: Path) -> None:
    pooled = ("parallel = 1", "parallel = 1\npool = true")
    app = read_app(write(tmp_path, pooled))
    assert (app.run.pool, app.evaluation.pool) == (True, True)
    with pytest.raises(
        ConfigurationError, match="the host of the loop limits attempts that it makes itself; leave pool"
    ):
        read_app(write(tmp_path, pooled, extra="[budget]\ntokens = 5\n"))


def test_options_of_another_grader_are_not_inherited(tmp_path: Path) -> None:
    options = "parallel = 1\ngrader_options = {field = 'label'}"
    path = write(tmp_path, ("parallel = 1", options), ('tasks = "test.jsonl"', 'tasks = "test.jsonl"\ngrader = "json"'))
    assert read_app(path).evaluation.grader_options == {}


def test_run_and_evaluation_act_in_the_environment_of_the_file(tmp_path: Path) -> None:
    table = "[environment]\nname = 'lake:Lake'\n[environment.options]\nslippery = false\nkwargs = {size = 3}\n"
    app = read_app(write(tmp_path, extra=table))
    for settings in (app.run, app.evaluation):
        assert settings.environment_settings is not None
        assert settings.environment_settings.name == "lake:Lake"
        assert settings.environment_settings.options == {"slippery": "false", "kwargs.size": "3"}
    misspelt = write(tmp_path, extra="[environment]\nnane = 'lake:Lake'\n")
    with pytest.raises(ConfigurationError, match=r"environment\S*nane: there is no such key. Did you mean name\?"):
        read_app(misspelt)


@pytest.mark.parametrize("name", ["lake", "patient", "apps"])
def test_an_example_that_acts_in_an_environment_is_such_a_file(name: str) -> None:
    app = read_app(EXAMPLES / name / "app.toml")
    assert app.environment is not None
    assert app.environment.name.partition(":")[0] == name
    assert [spec.kind for spec in app.train] == ["sft", "dr_grpo"]


def test_the_demos_file_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES / "office")
    assert read_app(Path("app.toml")).model.name == "office"


def test_a_job_file_is_a_training(tmp_path: Path) -> None:
    path = write(tmp_path, ('kind = "sft"', 'base = "m"\nkind = "sft"\ndeploy_always = true'))
    assert read_app(path).train[0].run.deploy_always


def test_without_a_training_it_is_the_default_job(tmp_path: Path) -> None:
    path = write(tmp_path, ('[[train]]\nkind = "sft"\nsteps = 2\n', ""))
    assert [spec.kind for spec in read_app(path).train] == ["dr_grpo"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("parallel = 1", "paralel = 1", r"run.paralel: there is no such key. Did you mean parallel\?"),
        ("steps = 2", "stepz = 2", "stepz is no setting of a training job"),
        ("[promotion]", "[promotoin]", r"promotoin: there is no such key. Did you mean promotion\?"),
        ("max_tasks = 25", "max_taks = 25", r"promotion.max_taks: .* Did you mean max_tasks\?"),
        ('tasks = "test.jsonl"', "", r"\[evaluation\] has no tasks"),
        ('agent = "solver:solve"', "", r"\[run\] has no agent"),
        ('name = "m"', "", "model.name: Field required"),
        ('kind = "sft"', 'base = "other"\nkind = "sft"', r"\[\[train\]\] 1: base is 'other', and \[model\] is 'm'"),
        ("[model]", "[model", "cannot be read: .*line 2"),
        ('agent = "solver:solve"', f'agent = "{UNKNOWN}"', "run.agent: not filled in yet"),
        ("steps = 2", "steps = 0", "steps: .*greater than or equal to 1"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_app(write(tmp_path, (old, new)))


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ("tokens = 0", "budget.tokens: .*greater than 0"),
        ("hours = 0", "budget.hours: .*greater than 0"),
        ("money = 0", "budget.money: .*greater than 0"),
        ("money = 5", "money needs a price"),
        ("tokenz = 5", r"Did you mean tokens\?"),
    ],
)
def test_a_budget_that_allows_nothing_is_refused(tmp_path: Path, budget: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_app(write(tmp_path, extra=f"[budget]\n{budget}\n"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="There is no file") as caught:
        read_app(tmp_path / "app.toml")
    assert "spanloop init" in caught.value.next_step
