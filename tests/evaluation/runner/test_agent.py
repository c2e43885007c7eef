"""Which ``opentelemetry-instrument`` an agent's command runs under."""

import shutil
import sys
from pathlib import Path

import pytest

from spanloop.evaluation.runner.agent import AgentSettings, activated, instrumented, is_callable_target
from spanloop.foundation.errors import ConfigurationError


def program(folder: Path, name: str) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def settings(*folders: Path, is_instrumented: bool = True) -> AgentSettings:
    path = ":".join(map(str, folders))
    return AgentSettings("agent", {"PATH": path}, "mark/", is_instrumented=is_instrumented)


def test_the_programs_own_environment_comes_first(tmp_path: Path) -> None:
    app, other = tmp_path / "app", tmp_path / "other"
    python, beside = program(app, "python"), program(app, "opentelemetry-instrument")
    on_path = program(other, "opentelemetry-instrument")
    assert instrumented(["python", "app.py"], settings(other, app)) == [beside, "python", "app.py"]
    assert instrumented([python, "app.py"], settings(other)) == [beside, python, "app.py"]
    assert instrumented([program(tmp_path / "third", "run.sh")], settings(other, app))[0] == on_path


def test_a_command_that_is_instrumented_already_or_by_itself_stays(tmp_path: Path) -> None:
    words = ["/some/opentelemetry-instrument", "python", "app.py"]
    assert instrumented(words, settings(tmp_path)) == words
    assert instrumented(["node", "app.mjs"], settings(tmp_path, is_instrumented=False)) == ["node", "app.mjs"]


def test_spanloops_own_environment_is_used_where_no_other_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    python, beside = program(own, "python"), program(own, "opentelemetry-instrument")
    program(other, "python")
    monkeypatch.setattr(sys, "executable", python)
    environment = activated({"PATH": str(other), "LANG": "C"})
    assert environment == {"PATH": f"{own}:{other}", "LANG": "C"}
    assert shutil.which("python", path=environment["PATH"]) == python
    assert instrumented(["python", "app.py"], AgentSettings("agent", environment, "mark/"))[0] == beside
    program(other, "opentelemetry-instrument")
    assert activated({"PATH": str(other)}) == {"PATH": str(other)}


def test_without_one_the_next_step_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match="no opentelemetry-instrument in the environment of 'python'"
    ) as caught:
        instrumented(["python", "app.py"], settings(tmp_path))
    assert "--no-instrument" in caught.value.next_step


@pytest.mark.parametrize(
    ("agent", "is_callable"),
    [
        ("solver:solve", True),
        ("my_app.agents.solver:Agent.run", True),
        ("python app.py", False),
        ("./run.sh", False),
        ("http://x", False),
        ("a:b c", False),
    ],
)
def test_a_callable_is_told_from_a_command(*, agent: str, is_callable: bool) -> None:
    assert is_callable_target(agent) is is_callable
