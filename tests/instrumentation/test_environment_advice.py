"""`spanloop instrument` says what traces an environment, and what is missing."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from spanloop.foundation.errors import ConfigurationError
from spanloop.instrumentation.loading import environment_advice
from spanloop.instrumentation.loading.environment_advice import PLAIN_HTTP, advice, install, missing_packages
from spanloop.instrumentation.loading.instrumentor_choice import Choice, Skipped, environment_choices
from spanloop.instrumentation.loading.libraries import LIBRARIES, Native

_BY_NAME = {library.name: library for library in LIBRARIES}


def test_what_nothing_traces_is_missing() -> None:
    bare = Choice(_BY_NAME["anthropic"], is_native=False)
    assert missing_packages([bare]) == ["opentelemetry-instrumentation-anthropic"]
    assert "spanloop instrument --install" in advice([bare])[-2]


def test_what_spanloop_traces_itself_is_not_missing() -> None:
    choice = Choice(_BY_NAME["langchain"], is_native=True)
    assert missing_packages([choice]) == []
    line, *others = advice([choice])
    assert (line.partition(": ")[2], others) == ("spanloop", [PLAIN_HTTP])  # its version may be before the colon


def test_model_calls_that_spanloops_own_module_leaves_out_are_missing() -> None:
    assert missing_packages([Choice(_BY_NAME["dspy"], is_native=True)]) == ["openinference-instrumentation-dspy"]


def test_an_instrumentor_that_stays_off_is_named_and_not_installed_again() -> None:
    skipped = Skipped("openinference-instrumentation-cohere", "needs cohere>=9, found cohere 7.3", is_misfit=True)
    lines = advice([Choice(_BY_NAME["cohere"], is_native=False, skipped=(skipped,))])
    assert lines == [
        "cohere: nothing traces it",
        "    stays off: openinference-instrumentation-cohere (needs cohere>=9, found cohere 7.3)",
        PLAIN_HTTP,
    ]


def test_an_environment_without_a_known_library_says_so() -> None:
    assert len(advice([])) == 2


def test_an_installation_that_fails_names_its_command() -> None:
    with pytest.raises(ConfigurationError, match="failed with exit code") as caught:
        install(["--no-such-option"])
    assert "--no-such-option" in caught.value.next_step


def test_what_was_installed_is_on_the_list(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packages = {"cohere": "", "openinference-instrumentation-cohere": "openinference.instrumentation.cohere:Cohere"}

    def install_into_path(names: list[str]) -> None:
        for name in packages.keys() & names:  # the tests' own environment has other libraries that nothing traces
            folder = tmp_path / f"{name.replace('-', '_')}-1.dist-info"
            folder.mkdir()
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
            entry = packages[name] and f"[opentelemetry_instrumentor]\ncohere = {packages[name]}\n"
            (folder / "entry_points.txt").write_text(entry)

    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    install_into_path(["cohere"])
    monkeypatch.setattr(environment_advice, "install", install_into_path)
    environment_advice.run(installs=True)
    assert "cohere 1: openinference-instrumentation-cohere" in capsys.readouterr().out.splitlines()


def test_an_environment_without_pip_and_uv_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(name: str) -> None:
        del name

    monkeypatch.setattr(environment_advice, "find_spec", find_nothing)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigurationError, match="no pip"):
        install(["anything"])


def test_extras_install_what_the_table_names_first() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = {name: project["optional-dependencies"][name] for name in _BY_NAME}
    for name, library in _BY_NAME.items():
        packages = [requirement.partition(">")[0] for requirement in extras[name]]
        needs_none = library.native not in {Native.NONE, Native.TOOLS} or name == "openai"
        assert packages == ([] if needs_none else [library.candidates[0].package])


@pytest.mark.parametrize("arguments", [["instrument"], ["doctor", "--app"]])
def test_the_command_runs_where_only_the_core_is_installed(arguments: list[str]) -> None:
    hidden = f"import sys; sys.modules['typer'] = None; sys.argv = ['spanloop', *{arguments}]"
    command = [sys.executable, "-c", f"{hidden}; from spanloop.cli import main; main()"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines(), done.stderr, done.returncode) == (advice(environment_choices()), "", 0)
