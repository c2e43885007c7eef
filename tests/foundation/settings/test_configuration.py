"""``spanloop.toml``."""

from pathlib import Path

import pytest

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.settings import Configuration, Guard, Promotion, find_configuration, load_configuration
from spanloop.foundation.settings.environment import settings_class
from spanloop.foundation.settings.metric import Metric

FILE = """
[attribution]
rules = ["mine", "default"]
judge = "grader"

[models.grader]
url = "http://127.0.0.1:8000/v1"
model = "small"
max_calls = 3

[rewards]
functions = ["agent"]
"""


def test_a_file_sets_rules_judge_models_and_rewards(tmp_path: Path) -> None:
    (tmp_path / "spanloop.toml").write_text(FILE)
    found = load_configuration(tmp_path)
    assert found.attribution.rules == ("mine", "default")
    assert found.attribution.judge == "grader"
    assert (found.models["grader"].max_calls, found.models["grader"].max_cost) == (3, None)
    assert found.rewards.functions == ("agent",)


def test_the_class_that_reads_the_variables_is_made_once_and_keeps_the_descriptions() -> None:
    made = settings_class(Promotion)
    assert settings_class(Promotion) is made
    descriptions = {name: field.description for name, field in Promotion.model_fields.items()}
    assert {name: field.description for name, field in made.model_fields.items()} == descriptions
    assert all(descriptions.values())


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    assert load_configuration(tmp_path) == Configuration()


def test_the_environment_wins_over_the_working_directory_and_that_over_the_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, data = tmp_path / "here", tmp_path / "data"
    for directory in (here, data):
        directory.mkdir()
        (directory / "spanloop.toml").write_text("")
    monkeypatch.chdir(here)
    assert find_configuration(data, {"SPANLOOP_CONFIG": "/x.toml"}) == Path("/x.toml")
    assert find_configuration(data, {}) == Path("spanloop.toml")
    (here / "spanloop.toml").unlink()
    assert find_configuration(data, {}) == data / "spanloop.toml"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[attribution]\nrule = []", r"attribution.rule: there is no such key. Did you mean rules\?"),
        ("[grading]", "grading: there is no such key"),
        ("[models.a]\nurl = 'http://x'", "models.a.model: Field required"),
        ("[models.a]\nurl = 'http://x'\nmodel = 'm'\nprompt_price = -1", "models.a.prompt_price"),
        ("[", "cannot be read"),
    ],
)
def test_what_is_not_known_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "spanloop.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        load_configuration(tmp_path)


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be read"):
        load_configuration(tmp_path, tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("min_tasks = 50\nmax_tasks = 20", "min_tasks = 50 contradicts max_tasks = 20"),
        ("min_tasks = 50\nmax_sessions = 20", "min_tasks = 50 contradicts max_sessions = 20"),
        ("metric = 'tokens'", "metric = tokens: less of it is better"),
        ("metric = 'speed'", "metric: Input should be 'success'"),
        ("margin = 1.0", "no success from 0 to 1 can rise by more than that"),
        ("tolerance = 1.0", "no success from 0 to 1 can fall by more"),
        ("reward_range = [1, 0]", "expected the smaller number first"),
        ("[promotion.guards.tokens]", r"guards.tokens: has no limit"),
        ("[promotion.guards.speed]\nat_most = 1", "guards.speed"),
        ("[promotion.guards.crashes]\nat_most = 0", "expected a share above 0 and below 1"),
        ("[promotion.guards.errors]\nat_least = 0.5\nat_most = 0.1", "at_least = 0.5 contradicts at_most = 0.1"),
        ("margin = 0.1\n[promotion.guards.success]\nmax_increase = 0.05", "max_increase = 0.05 contradicts margin"),
        ("[promotion.guards.success]\nmax_ratio = 1.0", "max_ratio = 1 contradicts metric = success, which must rise"),
        ("margin = 0.2\n[promotion.guards.success]\nat_most = 0.1", "at_most = 0.1 contradicts margin = 0.2"),
    ],
)
def test_a_rule_that_can_never_promote_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "spanloop.toml").write_text(f"[promotion]\n{text}\n")
    with pytest.raises(ConfigurationError, match=said):
        load_configuration(tmp_path)


def test_the_limit_on_crashes_stays_beside_further_guards_unless_it_is_set(tmp_path: Path) -> None:
    (tmp_path / "spanloop.toml").write_text("[promotion.guards.tokens]\nmax_ratio = 1.5\n")
    guards = load_configuration(tmp_path).promotion.guards
    assert guards == {Metric.CRASHES: Guard(at_most=0.25), Metric.TOKENS: Guard(max_ratio=1.5)}
    (tmp_path / "spanloop.toml").write_text("[promotion.guards.crashes]\nat_most = 0.5\n")
    assert load_configuration(tmp_path).promotion.guards == {Metric.CRASHES: Guard(at_most=0.5)}
