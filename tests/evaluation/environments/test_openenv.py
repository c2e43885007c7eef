"""OpenEnv's wire protocol: against its own server in an environment of its own, and against a scripted one.

``make test-openenv`` installs openenv-core into ``.venv-openenv``.
"""

import json
import subprocess
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.server import ServerConnection, serve

from spanloop.evaluation.environments import Action, EnvironmentFailedError, StepResult
from spanloop.evaluation.environments.openenv_environment import OpenEnvEnvironment

from ...ports import free_port

SERVER = Path(__file__).parents[2] / "frameworks" / "apps" / "openenv_server.py"
PYTHON = Path(__file__).parents[3] / ".venv-openenv" / "bin" / "python"


@contextmanager
def server(kind: str) -> Generator[str]:
    """Start OpenEnv's server with an environment of ``openenv_server.py``."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen([PYTHON, SERVER, kind, str(port)]) as process:
        try:
            deadline_s = time.monotonic() + 120
            while time.monotonic() < deadline_s and process.poll() is None:
                try:
                    if httpx.get(f"{url}/health", trust_env=False).is_success:
                        break
                except httpx.HTTPError:
                    time.sleep(0.2)
            yield url
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="make test-openenv installs openenv-core")
def test_environments_on_the_server_of_openenv_are_acted_in() -> None:
    with server("guess") as url:
        guessing = OpenEnvEnvironment(url=url)
        assert guessing.reset({"reset": {"offset": 2}}, 5) == {"hint": "Guess."}
        (tool,) = guessing.tools()
        assert (tool.name, list(tool.parameters["properties"])) == ("act", ["number"])  # type: ignore[arg-type]
        assert guessing.step(Action("act", {"number": 3})) == StepResult({"hint": "other"}, 0.0)
        refused = guessing.step(Action("act", {"number": "x"}))
        assert refused.error
        assert "Input should be a valid integer" in str(refused.observation)
        assert guessing.step(Action("act", {"number": 7})) == StepResult({"hint": "found"}, 1.0, done=True)
        with pytest.raises(EnvironmentFailedError, match=r"negative \(EXECUTION_ERROR\)"):
            guessing.step(Action("act", {"number": -1}))
        guessing.close()
    with server("mcp") as url:
        sums = OpenEnvEnvironment(url=url)
        sums.reset({}, 0)
        assert [(tool.name, tool.description) for tool in sums.tools()] == [("add", "Add two numbers.")]
        assert sums.step(Action("add", {"a": 1, "b": 2})) == StepResult("3")
        missing = sums.step(Action("add", {"a": 1}))
        assert missing.error
        assert "Missing required argument" in str(missing.observation)
        sums.close()


@pytest.fixture
def answers() -> list[str]:
    return []


@pytest.fixture
def url(answers: list[str]) -> Iterator[str]:
    """A server that answers each message by the next of ``answers``."""

    def answer(connection: ServerConnection) -> None:
        for _ in connection:
            if not answers:
                return
            connection.send(answers.pop(0))

    with serve(answer, "127.0.0.1", 0) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.socket.getsockname()[1]}"
        listening.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("hello", "JSONDecodeError"),
        ("[]", "answered [], expected an observation"),
        (json.dumps({"type": "observation", "data": {}}), "expected an observation"),
        (json.dumps({"type": "error", "data": {"message": "full", "code": "CAPACITY_REACHED"}}), "full (CAPACITY"),
        (json.dumps({"type": "observation", "data": {"observation": {}}}), "/schema gives no schema of an action"),
        (None, "ConnectionClosed"),
    ],
)
def test_a_server_that_answers_nonsense_is_named(
    url: str, answers: list[Any], answer: str | None, message: str
) -> None:
    answers += [] if answer is None else [answer]
    environment = OpenEnvEnvironment(url=url)
    with pytest.raises(EnvironmentFailedError) as caught:
        environment.reset({}, 0)
    assert message in str(caught.value)
    environment.close()


def test_a_server_that_is_away_is_named() -> None:
    with pytest.raises(EnvironmentFailedError, match=r"/ws cannot be reached: ConnectionRefusedError"):
        OpenEnvEnvironment(url=f"http://127.0.0.1:{free_port()}").reset({}, 0)
