"""Chat requests: the request to the engine, the response to the client, the stored captures."""

import json
import socket
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from openai import APIError, NotFoundError, OpenAI

from .support import PROMPT_IDS, TIMEOUT_S, WORDS, RunningGateway, StandIn, data_of, wait_until

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TEXT = "".join(WORDS)


def test_a_response_names_the_policy_version_and_omits_unrequested_fields(gateway: RunningGateway) -> None:
    response = gateway.chat(model="stand-in", temperature=0.5)
    document = response.json()
    assert response.status_code == 200
    assert document["model"] == "stand-in@external"
    assert document["choices"][0]["message"]["content"] == TEXT
    assert document["choices"][0]["logprobs"] is None
    assert "token_ids" not in document["choices"][0]
    assert "prompt_token_ids" not in document
    assert document["usage"]["total_tokens"] == 7


def test_the_engine_gets_all_request_fields_and_the_gateways_overrides(
    gateway: RunningGateway, stand_in: StandIn
) -> None:
    gateway.chat(
        model="stand-in", temperature=0.5, metadata={"a": ["ü"]}, tools=[], headers={"Authorization": "Bearer k"}
    )
    assert stand_in.requests[-1] == {
        "messages": [{"role": "user", "content": "hi"}],
        "model": "stand-in",
        "temperature": 0.5,
        "metadata": {"a": ["ü"]},
        "tools": [],
        "logprobs": True,
        "return_token_ids": True,
    }
    assert stand_in.headers[-1]["authorization"] == "Bearer k"


def test_requested_token_ids_and_logprobs_stay_in_the_response(gateway: RunningGateway) -> None:
    choice = gateway.chat(logprobs=True, return_token_ids=True).json()["choices"][0]
    assert choice["token_ids"] == [1001, 7, 8, 2]
    assert [entry["logprob"] for entry in choice["logprobs"]["content"]] == [-0.125, -0.25, -0.375, -0.5]


@pytest.mark.parametrize("stream", [False, True])
def test_a_capture_holds_sampled_tokens_logprobs_and_the_clients_span(gateway: RunningGateway, *, stream: bool) -> None:
    headers = {"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-01"}
    response = gateway.chat(stream=stream, temperature=0.5, seed=7, stop=["x"], headers=headers)
    response_id = data_of(response)[0]["id"] if stream else response.json()["id"]
    (capture,) = gateway.captures()
    assert capture.response_id == response_id
    assert capture.generation_id == f"{response_id}/0"
    assert (capture.trace_id, capture.parent_span_id) == (TRACE_ID, SPAN_ID)
    assert (capture.model, capture.policy_version) == ("stand-in", "stand-in@external")
    assert capture.prompt_token_ids == PROMPT_IDS
    assert capture.response_token_ids == [1001, 7, 8, 2]
    assert capture.logprobs == [-0.125, -0.25, -0.375, -0.5]
    assert capture.finish_reason == "stop"
    assert capture.is_complete
    assert capture.sampling == {"temperature": "0.5", "seed": "7", "stop": '["x"]'}
    assert capture.duration_ns > 0


@pytest.mark.parametrize("stream", [False, True])
def test_every_choice_is_captured(gateway: RunningGateway, *, stream: bool) -> None:
    gateway.chat(n=3, stream=stream)
    captures = gateway.captures()
    assert [capture.choice_index for capture in captures] == [0, 1, 2]
    assert all(capture.is_complete and capture.response_token_ids == [1001, 7, 8, 2] for capture in captures)


def test_a_stream_is_the_engines_without_unrequested_fields(gateway: RunningGateway) -> None:
    response = gateway.chat(stream=True, stream_options={"include_usage": True})
    *chunks, last_event = data_of(response)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert last_event == "[DONE]"
    assert "".join(part["delta"].get("content") or "" for chunk in chunks for part in chunk["choices"]) == TEXT
    assert {chunk["model"] for chunk in chunks[:-1]} == {"stand-in@external"}
    assert chunks[-1]["usage"] == {"prompt_tokens": 3, "completion_tokens": 4}
    assert not any("token_ids" in part or part["logprobs"] for chunk in chunks for part in chunk["choices"])
    assert not any("prompt_token_ids" in chunk for chunk in chunks)


def test_the_capture_is_on_disk_before_the_end_of_a_stream_is_delivered(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    recorded = threading.Event()
    record = gateway.gateway.recorder.record

    async def slowly(captures: Any) -> bool:
        seen_then = list(seen)
        assert not any('"finish_reason":"stop"' in data for data in seen_then)
        stored = await record(captures)
        recorded.set()
        return stored

    monkeypatch.setattr(gateway.gateway.recorder, "record", slowly)
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    with httpx.stream("POST", f"{gateway.url}/v1/chat/completions", json=body, timeout=TIMEOUT_S) as response:
        for line in response.iter_raw():
            seen.append(line.decode())
            if '"finish_reason":"stop"' in seen[-1]:
                assert recorded.is_set()
    assert recorded.is_set()


def test_a_disconnect_during_a_stream_aborts_the_engine_and_stores_an_incomplete_capture(
    gateway: RunningGateway, stand_in: StandIn
) -> None:
    stand_in.stall_after = 2
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    with httpx.stream("POST", f"{gateway.url}/v1/chat/completions", json=body, timeout=TIMEOUT_S) as response:
        for chunk in response.iter_raw():
            if b"alpha" in chunk:
                break
    wait_until(lambda: len(gateway.captures()) == 1)
    (capture,) = gateway.captures()
    assert not capture.is_complete
    assert capture.finish_reason == ""
    assert 1 <= len(capture.response_token_ids) == len(capture.logprobs) < 4
    wait_until(lambda: stand_in.running == 0)


def test_a_disconnect_before_a_whole_response_aborts_the_engine(gateway: RunningGateway, stand_in: StandIn) -> None:
    stand_in.paused = True
    url, body = httpx.URL(gateway.url), b'{"messages": [{"role": "user", "content": "hi"}]}'
    with socket.create_connection((url.host, url.port or 80), timeout=TIMEOUT_S) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        wait_until(lambda: stand_in.running == 1)
    wait_until(lambda: stand_in.aborted == 1)
    assert gateway.captures() == []


def test_a_stream_broken_by_the_engine_raises_in_the_client_and_is_captured_incomplete(
    gateway: RunningGateway, stand_in: StandIn
) -> None:
    stand_in.break_after = 2
    client = OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0)
    stream = client.chat.completions.create(model="stand-in", messages=[{"role": "user", "content": "hi"}], stream=True)
    with pytest.raises(APIError, match="engine stopped during the response"):
        for _ in stream:
            pass
    wait_until(lambda: len(gateway.captures()) == 1)
    (capture,) = gateway.captures()
    assert not capture.is_complete
    assert capture.response_token_ids == [1001, 7]


def test_a_response_broken_by_the_engine_is_a_503_in_openai_format(gateway: RunningGateway, stand_in: StandIn) -> None:
    stand_in.break_after = 0
    response = gateway.chat()
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "engine_lost"
    assert response.headers["retry-after"] == "5"


def test_the_engines_error_is_relayed_unchanged(gateway: RunningGateway, stand_in: StandIn) -> None:
    error = {"error": {"message": "too long", "type": "BadRequestError", "param": None, "code": 400}}
    stand_in.error_response = (400, error)
    for stream in (False, True):
        response = gateway.chat(stream=stream)
        assert (response.status_code, response.json()) == (400, error)
    assert gateway.captures() == []


def test_a_dead_engine_behind_a_live_server_is_a_503(gateway: RunningGateway, stand_in: StandIn) -> None:
    stand_in.error_response = (500, {"error": {"message": "EngineCore encountered an issue"}})
    stand_in.healthy = False
    response = gateway.chat()
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "engine_lost"


def test_an_unknown_model_is_a_404_that_names_the_served_ones(gateway: RunningGateway) -> None:
    client = OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0)
    with pytest.raises(NotFoundError, match=r"'gpt-9' is not served here; served: 'stand-in@external', 'stand-in'"):
        client.chat.completions.create(model="gpt-9", messages=[{"role": "user", "content": "hi"}])
    assert [model.id for model in client.models.list()] == ["stand-in@external", "stand-in"]


def test_an_unknown_route_is_a_404_in_openai_format_that_names_the_routes(gateway: RunningGateway) -> None:
    client = OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0)
    with pytest.raises(NotFoundError, match=r"There is no POST /v1/embeddings; .*POST /v1/chat/completions"):
        client.embeddings.create(model="stand-in", input="hi")
    response = httpx.get(f"{gateway.url}/v1/nothing", timeout=TIMEOUT_S)
    assert response.status_code == 404
    assert response.json() == {
        "error": {
            "message": "There is no GET /v1/nothing; the routes of this gateway: POST /v1/chat/completions, "
            "POST /v1/completions, POST /v1/responses, GET /v1/responses/{id}, DELETE /v1/responses/{id}, GET "
            "/v1/responses/{id}/input_items, POST /v1/messages, POST /v1/messages/count_tokens, POST /tokenize, POST "
            "/detokenize, GET /v1/models, GET /v1/models/{id}, GET /healthz, GET /readyz, GET /metrics, POST "
            "/admin/deploy, POST /admin/stop, GET /admin/deployments, POST /admin/names, POST /admin/pause, POST "
            "/admin/resume, POST /admin/metered, GET /admin/status, GET /admin/canary, POST /admin/canary, POST "
            "/admin/canary/stop.",
            "type": "not_found_error",
            "param": None,
            "code": "unknown_route",
        }
    }


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("GET", "/v1/chat/completions", "POST"), ("POST", "/v1/models", "GET, HEAD"), ("GET", "/admin/stop", "POST")],
)
def test_a_wrong_method_is_a_405_in_openai_format_that_names_the_allowed_ones(
    gateway: RunningGateway, method: str, path: str, allowed: str
) -> None:
    response = httpx.request(method, gateway.url + path, timeout=TIMEOUT_S)
    assert (response.status_code, response.headers["allow"]) == (405, allowed)
    assert response.json() == {
        "error": {
            "message": f"There is no {method} {path}; the methods of this path: {allowed}.",
            "type": "invalid_request_error",
            "param": None,
            "code": "method_not_allowed",
        }
    }


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "is not JSON"),
        (b"[]", "must be a JSON object, got list"),
        (b"{}", "'messages' must be a list"),
        (b'{"messages": []}', "at least one message"),
        (b'{"messages": [{}], "model": 3}', "'model' must be a string, got 3"),
        (b'{"messages": [{}], "n": 0}', "'n' must be a positive integer, got 0"),
        (b'{"messages": [{}], "stream": "yes"}', "'stream' must be true or false"),
        (b'{"messages": [{}], "top_logprobs": 2}', "'top_logprobs' needs"),
    ],
)
def test_a_malformed_request_is_a_400_that_names_the_field(gateway: RunningGateway, body: bytes, says: str) -> None:
    response = httpx.post(f"{gateway.url}/v1/chat/completions", content=body, timeout=TIMEOUT_S)
    assert response.status_code == 400
    assert says in response.json()["error"]["message"]
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_a_request_that_is_too_large_is_a_413(start_gateway: Callable[..., RunningGateway], upstream: str) -> None:
    gateway = start_gateway(upstream=upstream, max_body_bytes=100)
    assert gateway.chat(user="x" * 200).status_code == 413
    # A request without a length is rejected before its end, which never arrives.
    url = httpx.URL(gateway.url)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection((url.host, url.port or 80), timeout=TIMEOUT_S) as connection:
        connection.sendall(head + b"c8\r\n" + b"x" * 200 + b"\r\n")
        assert b" 413 " in connection.recv(4096)


def test_captures_reach_clickhouse_as_rows(
    stored_rows: Callable[[int], list[dict[str, Any]]], gateway: RunningGateway
) -> None:
    gateway.chat(temperature=0.5, n=2, headers={"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-01"})
    rows = stored_rows(2)
    assert [row["choice_index"] for row in rows] == [0, 1]
    assert rows[0]["response_token_ids"] == [1001, 7, 8, 2]
    assert rows[0]["logprobs"] == [-0.125, -0.25, -0.375, -0.5]
    assert json.loads(rows[0]["sampling"]) == {"temperature": "0.5", "n": "2"}
    assert rows[0]["policy_version"] == "stand-in@external"
    assert rows[0]["parent_span_id"] == SPAN_ID
    assert rows[0]["is_complete"]
    wait_until(lambda: gateway.health()["captures"]["waiting_records"] == 0)
    assert gateway.health()["status"] == "ok"


def test_a_full_spool_loses_the_tokens_but_not_the_response(
    start_gateway: Callable[..., RunningGateway], upstream: str
) -> None:
    gateway = start_gateway(upstream=upstream, spool_bytes=10)
    wait_until(lambda: gateway.health()["engine"] == "serving")
    assert gateway.chat().status_code == 200
    assert "spanloop_gateway_captures_lost_total 1" in httpx.get(f"{gateway.url}/metrics", timeout=TIMEOUT_S).text


def test_metrics_count_requests_captures_and_tokens(gateway: RunningGateway) -> None:
    gateway.chat()
    gateway.chat(stream=True)
    gateway.chat(model="nobody")
    text = httpx.get(f"{gateway.url}/metrics", timeout=TIMEOUT_S).text
    for line in (
        'spanloop_gateway_requests_total{status="200",stream="false"} 1',
        'spanloop_gateway_requests_total{status="200",stream="true"} 1',
        'spanloop_gateway_requests_total{status="404",stream="false"} 1',
        'spanloop_gateway_captures_total{complete="true"} 2',
        'spanloop_gateway_tokens_total{kind="response"} 8',
        "spanloop_gateway_spool_records 2",
        "spanloop_gateway_engine_serving 1.0",
    ):
        assert line in text.splitlines()
