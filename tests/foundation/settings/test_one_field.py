"""A field of a role's class is an option, a key, a variable, a row of the reference and a line of ``doctor``."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from spanloop.cli.app import app
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.settings import Configuration, EnvironmentSettings, Evaluation, Promotion, load_configuration
from spanloop.foundation.settings.metric import Metric
from spanloop.foundation.settings.roles import ROLES, GatewaySettings
from spanloop.foundation.settings.sources import read_process, resolve

MODULE = "spanloop.foundation.settings.roles.gateway"
ROOT = Path(__file__).parents[3]
FIELD = '''
    answer_tries: int = Field(default=3, ge=1)
    """Tries at one answer."""
'''
# Python imports it at the start of every process, also of one that replaces another.
CUSTOMIZATION = """
import sys
from importlib.abc import MetaPathFinder
from importlib.util import spec_from_file_location

class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        return spec_from_file_location(name, {file!r}) if name == {module!r} else None

sys.meta_path.insert(0, Finder())
"""
VARIABLE = "SPANLOOP_SERVE_GATEWAY_ANSWER_TRIES"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run Python where the gateway's class has one more field."""
    spec = find_spec(MODULE)
    assert spec is not None
    assert spec.origin is not None
    folder = tmp_path / "site"
    folder.mkdir()
    anchor = '    module = "spanloop.gateway"\n'
    source = Path(spec.origin).read_text()
    assert anchor in source
    (folder / "changed.py").write_text(source.replace(anchor, anchor + FIELD))
    customization = CUSTOMIZATION.format(file=str(folder / "changed.py"), module=MODULE)
    (folder / "sitecustomize.py").write_text(customization)
    others = {name: value for name, value in os.environ.items() if not name.startswith("SPANLOOP_SERVE_")}

    def start(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**others, "PYTHONPATH": f"{folder}:{ROOT / 'docs'}", "COLUMNS": "300", **variables}
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path
        )

    return start


def test_a_field_is_found_everywhere_without_another_change(run: Run, tmp_path: Path) -> None:
    module_help = run("-m", "spanloop.gateway", "--help").stdout
    assert "--answer-tries int" in module_help
    assert "Tries at one answer. (default: 3)" in " ".join(module_help.split())
    command_help = " ".join(run("-m", "spanloop.cli", "serve", "gateway", "--help").stdout.split())
    assert "--answer-tries <int> Tries at one answer." in command_help
    assert VARIABLE in command_help
    reference = run("-c", "import generate; print(generate.settings())").stdout
    assert f"| `[serve.gateway]` | `answer_tries` | `{VARIABLE}` | `3` | Tries at one answer. |" in reference

    data = tmp_path / "data"
    doctor = "-m", "spanloop.cli", "doctor", "--data-dir", str(data)
    data.mkdir()
    (data / "spanloop.toml").write_text("[serve.gateway]\nanswer_tries = 5\n")
    assert "settings of the gateway: answer_tries = 5 (spanloop.toml)" in run(*doctor).stdout
    assert f"settings of the gateway: answer_tries = 7 ({VARIABLE})" in run(*doctor, **{VARIABLE: "7"}).stdout
    started = run("-m", "spanloop.cli", "serve", "gateway", "--data-dir", str(data), "--answer-tries", "0")
    assert (started.returncode, started.stdout) == (2, "")
    assert "--answer-tries: Input should be greater than or equal to 1, got 0" in started.stderr
    module = run("-m", "spanloop.gateway", "--data-dir", str(data), "--answer-tries", "0")
    assert (module.returncode, module.stdout) == (2, "")
    assert "--answer-tries: Input should be greater than or equal to 1, got '0'" in module.stderr


@pytest.mark.parametrize("role", ROLES)
def test_each_field_of_each_role_is_an_option_with_help(role: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_process(ROLES[role], ["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for name, field in ROLES[role].model_fields.items():
        assert field.description, name
        assert f"{ROLES[role].option(name)} " in shown


def test_each_setting_of_an_evaluation_is_an_option_of_run() -> None:
    shown = " ".join(CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "300"}).stdout.split())
    for section in (Evaluation, EnvironmentSettings):
        for name, field in section.model_fields.items():
            if name not in {"tasks", "agent", "environment_settings"}:
                assert f" {section.option(name)} " in shown
                assert str(field.description).partition("``")[0][:25] in shown


def test_an_option_wins_over_a_variable_and_that_over_the_file_and_a_dotenv_file_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["--data-dir", str(tmp_path)]
    (tmp_path / ".env").write_text("SPANLOOP_SERVE_GATEWAY_PORT=1\n")
    assert read_process(GatewaySettings, arguments).settings.port == 8010
    (tmp_path / "spanloop.toml").write_text('[serve.gateway]\nport = 2\ndtype = "float32"\ngrace_s = 2\n')
    monkeypatch.setenv("SPANLOOP_SERVE_GATEWAY_PORT", "3")
    monkeypatch.setenv("SPANLOOP_SERVE_GATEWAY_GRACE_S", "3")
    monkeypatch.setenv("SPANLOOP_SERVE_GATEWAY_DTYPE", "")
    read = read_process(GatewaySettings, [*arguments, "--port", "4", "--vllm-args", '--x \'{"a": [1, "b,c"]}\''])
    assert (read.settings.port, read.settings.grace_s, read.settings.dtype) == (4, 3.0, "float32")
    assert read.settings.extra_args == ("--x", '{"a": [1, "b,c"]}')
    assert resolve(GatewaySettings, read.configuration, {"port": "4"}).origins == {
        "port": "--port",
        "grace_s": "SPANLOOP_SERVE_GATEWAY_GRACE_S",
        "dtype": "spanloop.toml",
    }


def test_variables_win_over_the_promotion_and_evaluation_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spanloop.toml").write_text(
        '[promotion]\nmargin = 0.1\nmin_tasks = 5\n[evaluation]\ntasks = "a.jsonl"\nagent = "m:f"\n'
    )
    monkeypatch.setenv("SPANLOOP_PROMOTION_MARGIN", "0.2")
    monkeypatch.setenv("SPANLOOP_PROMOTION_GUARDS", '{"tokens": {"max_ratio": 1.5}}')
    monkeypatch.setenv("SPANLOOP_EVALUATION_TASKS", "b.jsonl")
    monkeypatch.setenv("SPANLOOP_EVALUATION_LIMIT", "")
    read = load_configuration(tmp_path)
    assert (read.promotion.margin, read.promotion.min_tasks) == (0.2, 5)
    assert set(read.promotion.guards) == {Metric.CRASHES, Metric.TOKENS}
    assert (read.evaluation.tasks, read.evaluation.agent, read.evaluation.limit) == ("b.jsonl", "m:f", None)
    assert Promotion().margin == 0.0


@pytest.mark.parametrize(
    ("variable", "text", "problem"),
    [
        ("SPANLOOP_PROMOTION_ALPHA", "2", "SPANLOOP_PROMOTION_ALPHA: Input should be less than 0.5, got '2'"),
        ("SPANLOOP_PROMOTION_GUARDS", "tokens", "SPANLOOP_PROMOTION_*"),
        ("SPANLOOP_EVALUATION_TASKS", "a.jsonl", "set both, or none"),
    ],
)
def test_an_invalid_variable_of_a_section_is_refused_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, text: str, problem: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigurationError, match=re.escape(problem)):
        load_configuration(tmp_path)


def test_a_value_that_is_made_directly_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPANLOOP_SERVE_GATEWAY_PORT", "3")
    assert GatewaySettings().port == 8010


class SecretSettings(GatewaySettings):
    """A role with a secret."""

    token: SecretStr = SecretStr("the-default")
    """A secret."""


def test_a_secret_comes_from_a_file_and_is_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("from-the-file\n")
    monkeypatch.setenv("SPANLOOP_SERVE_GATEWAY_TOKEN_FILE", str(tmp_path / "token"))
    settings, origins = resolve(SecretSettings, Configuration())
    assert settings.token.get_secret_value() == "from-the-file"
    assert origins == {"token": "SPANLOOP_SERVE_GATEWAY_TOKEN"}
    assert "from-the-file" not in f"{settings} {settings!r}"
    with pytest.raises(SystemExit):
        read_process(SecretSettings, ["--help"])
    assert "the-default" not in capsys.readouterr().out
    with pytest.raises(ConfigurationError) as refused:
        resolve(SecretSettings, Configuration(), {"token": ["from-an-option"]})
    assert "--token: Input should be a valid string" in str(refused.value)
    assert "from-an-option" not in str(refused.value)
