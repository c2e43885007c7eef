"""The client of OpenAI-compatible models, against a server of our own."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from spanloop.foundation.model_client import BudgetExceededError, ModelCallError, ModelClient
from spanloop.foundation.settings import Model


class Server:
    """Answers every chat with ``answer``, or with ``status``."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, Any]]] = []
        self.status = 200
        self.answer: object = {
            "choices": [{"message": {"content": "hello"}}],
            "usage": {"prompt_tokens": 1_000_000, "completion_tokens": 500_000},
        }
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.requests.append((self.path, self.headers.get("Authorization", ""), body))
                self.send_response(server.status)
                self.end_headers()
                self.wfile.write(json.dumps(server.answer).encode())

            def log_message(self, format: str, *_: object) -> None:  # noqa: A002 - the base names it so
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.http.shutdown()
    found.http.server_close()


def model(server: Server, **settings: Any) -> Model:
    return Model(url=server.url, model="small", **settings)


def test_a_prompt_is_sent_as_a_chat_with_the_key(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "abc")
    assert ModelClient(model(server, api_key_env="SOME_KEY"), tmp_path).ask("hi") == "hello"
    path, key, body = server.requests[0]
    assert (path, key) == ("/v1/chat/completions", "Bearer abc")
    assert body == {"model": "small", "messages": [{"role": "user", "content": "hi"}], "temperature": 0}


def test_the_same_request_is_sent_once_even_by_another_process(server: Server, tmp_path: Path) -> None:
    assert ModelClient(model(server), tmp_path).ask("hi") == "hello"
    again = ModelClient(model(server), tmp_path)
    assert again.ask("hi") == "hello"
    assert again.counts == {"cached": 1}
    assert len(server.requests) == 1


def test_the_budget_of_calls_holds_for_the_data_directory(server: Server, tmp_path: Path) -> None:
    ModelClient(model(server, max_calls=1), tmp_path).ask("one")
    client = ModelClient(model(server, max_calls=1), tmp_path)
    with pytest.raises(BudgetExceededError):
        client.ask("two")
    assert client.ask("one") == "hello"
    assert client.counts == {"over_budget": 1, "cached": 1}
    assert len(server.requests) == 1


def test_the_budget_of_money_counts_both_prices(server: Server, tmp_path: Path) -> None:
    client = ModelClient(model(server, prompt_price=1.0, completion_price=4.0, max_cost=3.0), tmp_path)
    client.ask("one")  # 1 + 2
    with pytest.raises(BudgetExceededError):
        client.ask("two")


@pytest.mark.parametrize("answer", [{}, {"choices": []}, {"choices": [{"message": {"content": None}}]}, []])
def test_an_answer_of_another_form_is_an_error_and_not_cached(server: Server, tmp_path: Path, answer: object) -> None:
    good, server.answer = server.answer, answer
    client = ModelClient(model(server), tmp_path)
    with pytest.raises(ModelCallError):
        client.ask("hi")
    server.answer = good
    assert client.ask("hi") == "hello"


def test_a_refusal_and_a_closed_port_are_errors(server: Server, tmp_path: Path) -> None:
    server.status = 500
    client = ModelClient(model(server), tmp_path)
    with pytest.raises(ModelCallError, match="500"):
        client.ask("hi")
    assert client.counts == {"calls": 1, "failed": 1}
    nobody = ModelClient(Model(url="http://127.0.0.1:1/v1", model="m", timeout_s=2), tmp_path)
    with pytest.raises(ModelCallError):
        nobody.ask("hi")


def test_a_call_that_the_endpoint_refused_does_not_count_against_the_budget(server: Server, tmp_path: Path) -> None:
    server.status = 503
    client = ModelClient(model(server, max_calls=1), tmp_path)
    with pytest.raises(ModelCallError):
        client.ask("hi")
    server.status = 200
    assert client.ask("hi") == "hello"
