"""Errors, help and exit codes of the command line."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spanloop.cli import app as command_tree
from spanloop.foundation.errors import ConfigurationError
from spanloop.runtime import environment_checks
from spanloop.runtime.environment_checks import CPU_REQUIREMENT, create_serving_environment, run_command

from ...ports import free_port
from .support import Run

COMMANDS = [
    ["up"],
    ["status"],
    ["doctor"],
    ["demo"],
    ["import"],
    ["store", "attach"],
    ["forget"],
    ["keys", "create"],
    ["keys", "list"],
    ["keys", "revoke"],
    ["scores", "add"],
    ["scores", "list"],
    ["scores", "delete"],
    ["convert"],
    ["train"],
    ["run"],
    ["runs", "list"],
    ["runs", "show"],
    ["evaluate"],
    ["evaluations", "list"],
    ["evaluations", "show"],
    ["evaluations", "compare"],
    ["dead-letters", "list"],
    ["dead-letters", "show"],
    ["dead-letters", "replay"],
    ["jobs", "list"],
    ["jobs", "log"],
    ["jobs", "wait"],
    ["models", "add"],
    ["models", "deploy"],
]
DOCS = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(command: list[str]) -> None:
    completed = CliRunner().invoke(command_tree.app, [*command, "--help"])
    assert completed.exit_code == 0
    assert "Usage" in completed.stdout
    assert len(completed.stdout.splitlines()) > 5
    assert "Example: spanloop" in completed.stdout


def test_help_imports_no_heavy_part() -> None:
    code = (
        "import sys; import spanloop.cli.app\n"
        "heavy = {'torch', 'ray', 'verl', 'polars', 'pyarrow', 'clickhouse_connect', 'streamlit', 'sqlalchemy', "
        "'pydantic', 'pydantic_settings'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "[]"


def test_docs_show_the_help_as_it_is() -> None:
    command = [sys.executable, "-m", "typer", "spanloop.cli.app", "utils", "docs", "--name", "spanloop"]
    generated = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert DOCS.read_text().strip() == generated.strip(), f"run: {' '.join(command[1:])} > docs/reference/cli.md"


def test_version(spanloop_process: Run) -> None:
    assert spanloop_process("--version").stdout.startswith("spanloop 0.")


def test_status_without_anything_running_says_how_to_start(spanloop: Run) -> None:
    completed = spanloop("status")
    assert completed.returncode == 3
    assert "spanloop up" in completed.stdout


def test_lists_are_empty_with_a_hint(spanloop: Run) -> None:
    assert "spanloop train" in spanloop("jobs", "list").stderr
    assert "spanloop models add" in spanloop("models", "list").stderr
    assert "--cron" in spanloop("schedules", "list").stderr


def test_an_unknown_model_is_one_message_and_no_traceback(spanloop_process: Run) -> None:
    completed = spanloop_process("train", "nobody")
    assert completed.returncode != 0
    assert "nobody" in completed.stderr
    assert "next:" in completed.stderr
    assert "Traceback" not in completed.stderr


def test_settings_that_do_not_fit_are_named(spanloop: Run) -> None:
    for option, value in (("--steps", "0"), ("--min-reward", "1")):
        completed = spanloop("train", "tiny", option, value)
        assert completed.returncode == 2
        assert option.removeprefix("--").replace("-", "_") in completed.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "tiny", "--at", "2020-01-01"], "has passed"),
        (["train", "tiny", "--at", "2099-01-01", "--cron", "0 3 * * *"], "give one of"),
        (["train", "tiny", "--wait", "--cron", "0 3 * * *"], "--wait"),
        (["up", "--collector-port", "70000"], "65535"),
        (["up", "--collector-port", "0"], "--collector-port"),
        (["up", "--vllm-args", "--chat-template 'half"], "No closing quotation"),
    ],
    ids=["past", "two times", "wait for later", "port too high", "port zero", "open quote"],
)
def test_arguments_that_make_no_sense_are_refused(spanloop: Run, arguments: list[str], message: str) -> None:
    completed = spanloop(*arguments)
    assert completed.returncode == 2
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr


def test_one_port_for_two_services_is_refused_before_anything_starts(spanloop: Run) -> None:
    port = str(free_port())
    completed = spanloop("up", "--collector-port", port, "--gateway-port", port)
    assert completed.returncode == 3
    assert "requested twice" in completed.stderr
    assert "starting" not in completed.stderr


def test_up_with_an_unknown_model_starts_nothing(spanloop: Run) -> None:
    completed = spanloop("up", "--model", "nobody")
    assert completed.returncode == 1
    assert "nobody" in completed.stderr
    assert "starting" not in completed.stderr


def test_a_full_disk_is_one_message(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/data/models/tiny/v1/model.safetensors")

    monkeypatch.setattr(command_tree, "app", refuse)
    with pytest.raises(SystemExit) as caught:
        command_tree.run()
    assert caught.value.code == 4
    assert "No space is left for /data/models/tiny/v1/model.safetensors" in capsys.readouterr().err


def test_a_data_directory_of_another_layout_is_refused(spanloop: Run, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "version.json").write_text('{"layout": 999, "spanloop": "9.9"}')
    completed = spanloop("up", "--no-dashboard")
    assert completed.returncode == 4
    assert "999" in completed.stderr
    assert "next:" in completed.stderr


@pytest.mark.parametrize("command", [("doctor", "--app"), ("instrument",)])
def test_what_traces_an_app_is_printed(spanloop: Run, command: tuple[str, ...]) -> None:
    completed = spanloop(*command)
    assert completed.returncode == 0
    assert ": opentelemetry-instrumentation-openai" in completed.stdout


def test_doctor_names_the_command_that_mends_a_missing_serving_environment(spanloop: Run, tmp_path: Path) -> None:
    completed = spanloop("doctor", SPANLOOP_SERVING_VENV=str(tmp_path / "nowhere"))
    assert completed.returncode == 1
    assert "spanloop doctor --fix" in completed.stdout


def test_convert_on_an_empty_store_starts_one_and_says_what_to_do(spanloop: Run) -> None:
    completed = spanloop("convert")
    assert completed.returncode == 0, completed.stderr
    assert "opentelemetry-instrument" in completed.stderr


def test_the_demo_needs_a_serving_environment_before_it_starts_anything(spanloop: Run, tmp_path: Path) -> None:
    completed = spanloop("demo", "--tiny", SPANLOOP_SERVING_VENV=str(tmp_path / "nowhere"))
    assert completed.returncode == 2
    assert "spanloop doctor --fix" in completed.stderr
    assert "services up" not in completed.stderr


def test_installing_shows_each_line_and_a_failure_the_last_ones() -> None:
    lines: list[str] = []
    run_command([sys.executable, "-c", "print('one'); print('two')"], lines.append)
    assert lines == ["one", "two"]
    with pytest.raises(ConfigurationError, match="no such package") as caught:
        run_command([sys.executable, "-c", "import sys; sys.exit('no such package')"], lines.append)
    assert "spanloop doctor --fix" in caught.value.next_step


def test_an_installation_does_not_end_with_lines_about_removed_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def note(command: list[str], _on_line: object) -> None:
        commands.append(command)

    monkeypatch.setattr(environment_checks, "run_command", note)
    create_serving_environment(tmp_path / "serving", lambda _title, _line: None, required=CPU_REQUIREMENT)
    (removal,) = (command for command in commands if "uninstall" in command)
    assert "--quiet" in removal


@pytest.mark.parametrize(
    ("missing", "extra", "command"),
    [
        ("typer", "server", "status"),
        ("polars", "server", "convert"),
        ("sqlalchemy", "server", "jobs list"),
    ],
)
def test_a_missing_extra_is_named(tmp_path: Path, missing: str, extra: str, command: str) -> None:
    hide = f"import sys; sys.modules[{missing!r}] = None; from spanloop.cli import main; main()"
    completed = subprocess.run(
        [sys.executable, "-c", hide, *command.split()],
        capture_output=True,
        text=True,
        env={**os.environ, "SPANLOOP_DATA_DIR": str(tmp_path / "data"), "TMPDIR": str(tmp_path)},
        check=False,
    )
    assert completed.returncode == 2, completed.stderr
    assert f"{missing!r}" in completed.stderr
    assert f"pip install '/path/to/spanloop[{extra}]'" in completed.stderr
    assert "Traceback" not in completed.stderr
