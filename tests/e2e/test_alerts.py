"""An alert arrives at a webhook within ten seconds of the span that caused it, and its link shows the episode."""

import json
import secrets
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from spanloop.client import Client
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import read_run_file
from spanloop.training.alerts.alert_api import AlertApi

from ..dashboard.cli.support import Up, eventually, everything_up
from ..training.alerts.receivers import Posts, web_receiver

LIMIT_S = 10.0


@pytest.fixture(scope="module")
def web() -> Iterator[Posts]:
    with web_receiver() as posts:
        yield posts


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, web: Posts) -> Iterator[Up]:
    with everything_up(tmp_path_factory.mktemp("up") / "data") as running:
        (running.data_dir / "spanloop.toml").write_text(
            f'[alerts.channels.ops]\nkind = "webhook"\nurl = "{web.url}"\n', encoding="utf-8"
        )
        yield running


def send_failed_call(up: Up, agent: str) -> str:
    """Send the span of a model call of an agent that has just failed; return its trace id."""
    collector = read_run_file(up.data_dir, "collector")
    assert collector is not None
    trace_id, ended_ns = secrets.token_hex(16), time.time_ns()
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.agent.name": agent,
        "gen_ai.request.model": "tiny",
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "hello"}]}]),
        "error.type": "APITimeoutError",
    }
    span = {
        "traceId": trace_id,
        "spanId": secrets.token_hex(8),
        "name": "chat tiny",
        "startTimeUnixNano": str(ended_ns - 10**9),
        "endTimeUnixNano": str(ended_ns),
        "status": {"code": 2, "message": "Request timed out."},
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
    }
    body: dict[str, object] = {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "test"}, "spans": [span]}]}]}
    httpx.post(f"{collector.url}/v1/traces", json=body, timeout=30).raise_for_status()
    return trace_id


def test_a_webhook_is_received_within_ten_seconds_of_the_causing_span(up: Up, web: Posts) -> None:
    api = AlertApi(DataDir(up.data_dir))
    api.add("failing", "failures of planner above 50% over 15m", ["ops"])
    test = api.test("failing")
    assert eventually(lambda: api.get(test.id).deliveries[0].received_at is not None, 60)
    assert [document["status"] for document in web.documents] == ["test"]
    # A process imports what converts and measures when it is first needed.
    send_failed_call(up, "another")
    with Client(DataDir(up.data_dir).path) as client:
        assert eventually(lambda: client.count("episodes", "agent=another") == 1, 60)
    web.arrived.clear()
    trace_id = send_failed_call(up, "planner")
    assert web.arrived.wait(LIMIT_S), f"nothing within {LIMIT_S} s; history: {api.history()}"
    document = web.documents[-1]
    assert (document["rule"], document["status"]) == ("failing", "firing")
    assert document["detail"] == "failures 100.0% of 1 episode"
    link = urlsplit(str(document["link"]))
    dashboard = read_run_file(up.data_dir, "dashboard")
    assert dashboard is not None
    assert (f"{link.scheme}://{link.netloc}", link.path) == (dashboard.url, "/episodes")
    with Client(DataDir(up.data_dir).path) as client:
        assert client.episodes(str(document["link"]))["episode_id"].to_list() == [trace_id]
    files = [up.data_dir / "control.db", *(up.data_dir / "logs").rglob("*")]
    assert not [file for file in files if file.is_file() and b"of-a-secret-address" in file.read_bytes()]
