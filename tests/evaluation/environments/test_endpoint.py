"""The protocol over HTTP: the client of agents, our server, and servers of others."""

import json
import os
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from spanloop.evaluation.environments import Action, EnvironmentFailedError, EnvironmentSettings
from spanloop.evaluation.environments.endpoint import Endpoint, serving
from spanloop.evaluation.environments.http_environment import HttpEnvironment
from spanloop.evaluation.environments.pool import EnvironmentPool, PoolSettings
from spanloop.instrumentation import EnvironmentUnavailableError, environment
from spanloop.semconv.environment import ENVIRONMENT_SESSION_ENV, ENVIRONMENT_URL_ENV, SEED_ENV
from spanloop.semconv.errors import ConfigurationError

HERE = Path(__file__).parent
KEY = "the key"


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[EnvironmentPool]:
    settings = EnvironmentSettings(name="troublesome:Counter", step_timeout_s=0.5)
    with EnvironmentPool(PoolSettings(settings, os.environ, f"{tmp_path}/", HERE)) as pool:
        yield pool


@pytest.fixture
def url(pool: EnvironmentPool) -> Iterator[str]:
    with serving(Endpoint(pool, key=KEY)) as url:
        yield url


def test_an_agent_acts_in_the_session_of_its_attempt_and_starts_no_other(
    pool: EnvironmentPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = pool.open({"task_id": "t"}, 5)
    with serving(Endpoint(pool)) as url:
        monkeypatch.setenv(ENVIRONMENT_URL_ENV, url)
        monkeypatch.setenv(ENVIRONMENT_SESSION_ENV, session.key)
        with environment() as world:
            assert (world.text, world.takes_messages) == ("Count to 2, seed 5.", False)
            assert world.tools[0]["function"]["name"] == "add"
            assert world.step("add", '{"number": 1').error
            assert world.step("add", '{"number": "one"}').error
            last = world.step("add", '{"number": 2}')
            assert (last.text, last.reward, last.done, world.done, world.reward) == ("2", 1.0, True, True, 1.0)
        assert (session.outcome.reward, session.outcome.steps) == (1.0, 2)
        with pytest.raises(EnvironmentUnavailableError, match="status 409: The episode has begun; an attempt has one"):
            environment()
        with pytest.raises(EnvironmentUnavailableError, match="status 401: Starting a session needs"):
            environment(url)
        pool.release(session)
        with pytest.raises(EnvironmentUnavailableError, match="status 404: There is no such session"):
            environment()


def test_without_an_environment_the_next_step_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT_URL_ENV, raising=False)
    with pytest.raises(ConfigurationError, match=r"no attempt of a run with one.\n.*--environment NAME"):
        environment()


def test_a_session_is_started_with_the_key_and_closed_with_its_own(
    pool: EnvironmentPool, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SEED_ENV, "3")
    with environment(url, key=KEY, task={"task_id": "t"}) as world, environment(url, key=KEY, seed=4) as other:
        assert (world.text, other.text) == ("Count to 2, seed 3.", "Count to 2, seed 4.")
        assert pool.sessions == 2
    assert pool.sessions == 0
    with pytest.raises(EnvironmentUnavailableError, match=r"status 502: The environment .* the board is lost\. Next: "):
        environment(url, key=KEY, task={"do": "raise at reset"})
    with (
        environment(url, key=KEY, task={"do": "hang"}) as world,
        pytest.raises(EnvironmentUnavailableError, match=r"it did not answer step within 0\.5 s"),
    ):
        world.step("add", {"number": 1})
    assert pool.sessions == 0


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("reset", b"{", 400, "The body is not JSON"),
        ("reset", b"[]", 400, "Expected a JSON object."),
        ("reset", b'{"seed": -1}', 400, "Expected task: an object, and seed: an integer"),
        ("step", b'{"session": "x"}', 404, "There is no such session"),
        ("step", b'{"session": 7}', 404, "There is no such session"),
        ("close", b'{"session": "\xc3\xa4"}', 404, "There is no such session"),
        ("step", b" " * (1 << 20) + b"{}", 413, "The body has more than 1,048,576 bytes."),
    ],
)
def test_what_is_no_request_of_the_protocol_is_refused(
    url: str, path: str, body: bytes, status: int, message: str
) -> None:
    answer = httpx.post(f"{url}/v1/{path}", content=body, headers={"Authorization": f"Bearer {KEY}"}, trust_env=False)
    assert (answer.status_code, answer.json()["error"]["message"][: len(message)]) == (status, message)


def test_an_environment_behind_a_url_is_one_like_a_class(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_KEY", KEY)
    remote = HttpEnvironment(url=url, key_env="LAKE_KEY")
    assert remote.reset({"task_id": "t"}, 9) == "Count to 2, seed 9."
    assert [tool.name for tool in remote.tools()] == ["add"]
    assert not remote.takes_messages
    result = remote.step(Action("add", {"number": 2}))
    assert (result.observation, result.reward, result.done, result.components) == ("2", 1.0, True, {"goal": 1.0})
    remote.close()


@contextmanager
def answering(status: int, body: bytes) -> Generator[str]:
    """Serve one answer for everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            del format, args

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, b"hello", "reset of URL answered status 200 and 'hello', expected JSON"),
        (200, b"[]", "reset answered [], expected a JSON object"),
        (200, b"{}", "reset answered {}, expected a field 'observation'"),
        (200, b'{"observation": 1, "tools": 3}', "reset gave tools 3, expected a list of tools"),
        (200, b'{"observation": 1, "tools": [{}]}', "reset gave tools {}, expected "),
        (200, b'{"observation": 1}', "reset of URL gave session None, expected text"),
        (500, b'{"error": {"message": "no lake"}}', "reset of URL answered status 500: no lake"),
    ],
)
def test_a_server_that_answers_nonsense_is_named(status: int, body: bytes, message: str) -> None:
    with answering(status, body) as url, pytest.raises(EnvironmentFailedError) as caught:
        HttpEnvironment(url=url).reset({}, 0)
    assert str(caught.value).startswith(message.replace("URL", url))


def test_a_server_that_never_answers_or_is_away_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(EnvironmentFailedError, match=f"reset of {url}: ReadTimeout"):
            HttpEnvironment(url=url, timeout_s=0.2).reset({}, 0)
    with pytest.raises(EnvironmentFailedError, match=f"reset of {url}: ConnectError"):
        HttpEnvironment(url=url).reset({}, 0)
    assert json.dumps(HttpEnvironment(url=url).option_values())
