"""``spanloop.toml``."""

from pathlib import Path

import pytest

from spanloop.configuration import Configuration, find_configuration, load_configuration
from spanloop.semconv.errors import ConfigurationError

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
        ("[attribution]\nrule = []", "attribution.rule: Extra inputs"),
        ("[grading]", "grading: Extra inputs"),
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
