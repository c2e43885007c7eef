"""Unpaired surrogates, bodies nested too deep, and defects: answered in OpenAI's format, each ends one request."""
# pyright: reportPrivateUsage=false

import json
import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import APIError, BadRequestError, DefaultHttpxClient, InternalServerError, OpenAI
from starlette.requests import Request
from starlette.responses import Response

from spanloop.gateway.canary.call import CanaryCall, decode_call, encode_call
from spanloop.gateway.canary.canaries import Canaries
from spanloop.gateway.canary.shadow_answer import KIND, decode_shadow
from spanloop.gateway.engine.lifecycle import EngineLifecycle

from .support import PROMPT_IDS, TIMEOUT_S, RunningGateway, StandIn, data_of, serving, wait_until, write_model

HALF = "cut \ud83d emoji"
"""Half of an emoji, as JavaScript's ``slice`` leaves it."""
MESSAGES = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "f", "description": HALF}}]
DEEP = b"[" * 100_000 + b"]" * 100_000


def post(gateway: RunningGateway, body: bytes, path: str = "/v1/chat/completions", **headers: str) -> httpx.Response:
    return httpx.post(f"{gateway.url}{path}", content=body, headers=headers, timeout=TIMEOUT_S)


def admin_headers(gateway: RunningGateway) -> dict[str, str]:
    return {"Authorization": f"Bearer {(gateway.data_dir.gateway / 'admin.token').read_text().strip()}"}


def defects(gateway: RunningGateway) -> int:
    text = httpx.get(f"{gateway.url}/metrics", timeout=TIMEOUT_S).text
    return int(
        next((line.split()[1] for line in text.splitlines() if line.startswith("spanloop_gateway_defects_total")), 0)
    )


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": [*MESSAGES, {"role": "user", "content": HALF}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": HALF}]}]}, "messages[0].content[0].text"),
        ({"tools": TOOLS}, "tools[0].function.description"),
        ({"stop": ["x", HALF]}, "stop[1]"),
        ({"stop": "\udc00"}, "stop"),
        ({"model": HALF}, "model"),
        ({"metadata": {"a": {HALF: 1}}}, "metadata.a (a key)"),
    ],
)
def test_an_unpaired_surrogate_is_a_400_that_names_the_field(
    gateway: RunningGateway, stand_in: StandIn, fields: dict[str, Any], param: str, *, stream: bool
) -> None:
    response = post(gateway, json.dumps({"messages": MESSAGES, "stream": stream} | fields).encode())
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, "invalid_request")
    assert param in error["message"]
    assert "unpaired surrogate" in error["message"]
    assert not stand_in.requests


def test_an_unpaired_surrogate_as_raw_bytes_is_a_400(gateway: RunningGateway) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": HALF}]}, ensure_ascii=False)
    for encoding in ("utf-8", "utf-16"):
        response = post(gateway, body.encode(encoding, "surrogatepass"))
        assert (response.status_code, response.json()["error"]["param"]) == (400, "messages[0].content"), encoding


def test_openais_client_raises_its_own_error_and_does_not_retry(gateway: RunningGateway) -> None:
    requests: list[object] = []
    body = json.dumps({"messages": [{"role": "user", "content": HALF}]}).encode()
    with DefaultHttpxClient(event_hooks={"request": [requests.append]}) as http:
        client = OpenAI(base_url=f"{gateway.url}/v1", api_key="none", http_client=http)
        with pytest.raises(BadRequestError) as error:
            client.post("/chat/completions", content=body, cast_to=object)
    assert error.value.param == "messages[0].content"
    assert len(requests) == 1


def test_a_paired_surrogate_and_its_escape_as_text_reach_the_engine(gateway: RunningGateway, stand_in: StandIn) -> None:
    content = "\N{GRINNING FACE} and the six characters \\ud83d"
    body = json.dumps({"messages": [{"role": "user", "content": content}]}).encode()
    assert post(gateway, body).status_code == 200
    assert stand_in.requests[-1]["messages"][0]["content"] == content


@pytest.mark.parametrize("body", [DEEP, b'{"messages": ' + DEEP + b"}", b'{"a":' * 50_000 + b"1" + b"}" * 50_000])
def test_a_body_that_is_nested_too_deep_is_a_400(gateway: RunningGateway, body: bytes) -> None:
    response = post(gateway, body)
    assert response.status_code == 400
    assert "nested too deep" in response.json()["error"]["message"]
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_no_depth_of_a_body_is_a_defect(gateway: RunningGateway) -> None:
    for depth in range(840, 1000, 3):
        body = b'{"messages": [{}], "response_format": ' + b"[" * depth + b"]" * depth + b"}"
        assert post(gateway, body).status_code in {200, 400}, depth
    assert defects(gateway) == 0


@pytest.mark.parametrize("path", ["pause", "resume", "deploy", "canary", "canary/stop"])
def test_the_admin_routes_refuse_the_same_bodies(gateway: RunningGateway, path: str) -> None:
    for body, says in ((DEEP, "nested too deep"), (json.dumps({"holder": HALF, "ttl_s": 9}).encode(), "'holder'")):
        response = post(gateway, body, f"/admin/{path}", **admin_headers(gateway))
        assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_request")
        assert says in response.json()["error"]["message"]
    assert gateway.health()["status"] == "ok"


# --- an engine's answer


@dataclass
class ScriptedEngine(StandIn):
    """Answers chat requests with given bytes."""

    whole: bytes = b"{}"
    events: tuple[bytes, ...] = ()

    async def _chat(self, request: Request) -> Response:
        if (await request.json()).get("stream"):
            content = b"".join(b"data: " + event + b"\n\n" for event in (*self.events, b"[DONE]"))
            return Response(content, media_type="text/event-stream")
        return Response(self.whole, media_type="application/json")


def completion(content: str, **fields: Any) -> bytes:
    return json.dumps(
        {
            "id": f"chatcmpl-{HALF}",
            "object": "chat.completion",
            "model": "stand-in",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": content},
                    "logprobs": {"content": [{"token": content, "logprob": -0.5, "bytes": None, "top_logprobs": []}]},
                    "finish_reason": "stop",
                    "token_ids": [7],
                }
            ],
            "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
            "prompt_token_ids": PROMPT_IDS,
        }
        | fields
    ).encode()


def chunk(content: str, finish_reason: str | None) -> bytes:
    delta = {"index": 0, "delta": {"content": content}, "finish_reason": finish_reason, "token_ids": [7],
             "logprobs": {"content": [{"token": "x", "logprob": -0.5}]}}  # fmt: skip
    document = {"id": f"chatcmpl-{HALF}", "object": "chat.completion.chunk", "model": "stand-in", "choices": [delta],
                "prompt_token_ids": PROMPT_IDS}  # fmt: skip
    return json.dumps(document).encode()


@pytest.fixture
def scripted(tmp_path: Path) -> ScriptedEngine:
    return ScriptedEngine(
        write_model(tmp_path / "models" / "scripted", 1),
        whole=completion(HALF),
        events=(chunk("cut \ud83d", None), chunk("\ude00 emoji", None), chunk(HALF, "stop")),
    )


@pytest.fixture
def scripted_gateway(
    scripted: ScriptedEngine, start_gateway: Callable[..., RunningGateway]
) -> Generator[RunningGateway]:
    with serving(scripted.app()) as url:
        running = start_gateway(upstream=url)
        wait_until(lambda: running.health()["engine"] == "serving")
        yield running


def test_an_answer_with_an_unpaired_surrogate_is_relayed_and_captured(scripted_gateway: RunningGateway) -> None:
    response = scripted_gateway.chat()
    assert response.status_code == 200
    assert response.json()["choices"][0]["message"]["content"] == HALF
    (capture,) = scripted_gateway.captures()
    assert (capture.response_id, capture.response_token_ids) == ("chatcmpl-cut \ufffd emoji", [7])
    assert capture.is_complete


def test_chunks_with_halves_of_an_emoji_are_relayed_and_captured(scripted_gateway: RunningGateway) -> None:
    response = scripted_gateway.chat(stream=True)
    *chunks, end = data_of(response)
    texts = [part["choices"][0]["delta"]["content"] for part in chunks]
    assert (texts, end) == (["cut \ud83d", "\ude00 emoji", HALF], "[DONE]")
    (capture,) = scripted_gateway.captures()
    assert (capture.response_token_ids, capture.is_complete) == ([7, 7, 7], True)


def test_a_capture_with_an_unpaired_surrogate_is_a_row(
    stored_rows: Callable[[int], list[dict[str, Any]]], scripted_gateway: RunningGateway
) -> None:
    scripted_gateway.chat()
    assert stored_rows(1)[0]["response_id"] == "chatcmpl-cut \ufffd emoji"


def test_a_shadow_answer_with_an_unpaired_surrogate_is_stored(
    gateway: RunningGateway, scripted: ScriptedEngine, tmp_path: Path
) -> None:
    path = str(write_model(tmp_path / "models" / "v2", 2))
    with serving(scripted.app()) as url:
        body = {"name": "m", "version": "v2", "path": path, "upstream": url, "share": 1, "is_shadow": True}
        assert gateway.admin("canary", **body).status_code == 200
        gateway.chat(headers={"x-session-id": "s"})
        recorder, answers = gateway.gateway.recorder, list[Any]()

        def is_stored() -> bool:
            with recorder._drain_lock:
                while (batch := recorder._spool.read(1 << 20)) is not None:
                    answers.extend(decode_shadow(record.body) for record in batch.records if record.kind == KIND)
                    recorder._spool.commit(batch)
            return bool(answers)

        wait_until(is_stored)
        gateway.admin("canary/stop")
    assert json.loads(answers[0].answer)["text"] == "cut \ufffd emoji"
    assert answers[0].error == ""


def test_a_canary_call_with_an_unpaired_surrogate_is_a_record() -> None:
    call = CanaryCall(
        canary_id="c", call_id="1", session="s", arm="champion", policy_version="m@v1", response_id=HALF, trace_id="",
        status=200, error="", prompt_tokens=1, response_tokens=1, started_ns=1, duration_ns=1,
    )  # fmt: skip
    assert decode_call(encode_call(call)).response_id == "cut \ufffd emoji"


def test_an_answer_that_is_nested_too_deep_is_a_502(scripted: ScriptedEngine, scripted_gateway: RunningGateway) -> None:
    scripted.whole = DEEP
    response = scripted_gateway.chat()
    assert (response.status_code, response.json()["error"]["type"]) == (502, "server_error")


# --- a defect


def break_captures(gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> bool:
        raise ZeroDivisionError("a defect of the test")

    monkeypatch.setattr(gateway.gateway.recorder, "record", fail)


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [str(record.exc_info[1]) for record in caplog.records if record.exc_info]


def test_a_defect_is_a_500_in_openais_format_logged_and_counted_once(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    break_captures(gateway, monkeypatch)
    client = OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0)
    with caplog.at_level(logging.ERROR), pytest.raises(InternalServerError) as error:
        client.chat.completions.create(model="stand-in", messages=[{"role": "user", "content": "hi"}])
    assert (error.value.status_code, error.value.code, error.value.type) == (500, "internal_error", "server_error")
    assert "ZeroDivisionError" in error.value.message
    assert tracebacks(caplog) == ["a defect of the test"]
    assert defects(gateway) == 1
    text = httpx.get(f"{gateway.url}/metrics", timeout=TIMEOUT_S).text
    assert 'spanloop_gateway_requests_total{status="500",stream="false"} 1' in text
    monkeypatch.undo()
    assert gateway.chat().status_code == 200
    assert gateway.health()["running_requests"] == 0


def test_a_defect_within_a_stream_ends_it_with_an_error_event(
    gateway: RunningGateway, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    break_captures(gateway, monkeypatch)
    stand_in.token_delay_s = 0.02  # the first events have left before the capture fails
    client = OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0)
    stream = client.chat.completions.create(model="stand-in", messages=[{"role": "user", "content": "hi"}], stream=True)
    with caplog.at_level(logging.ERROR), pytest.raises(APIError) as error:
        list(stream)
    assert error.value.code == "internal_error"
    assert tracebacks(caplog) == ["a defect of the test"]
    assert defects(gateway) == 1


@pytest.mark.parametrize("path", ["/admin/status", "/v1/models", "/healthz"])
def test_a_defect_of_another_route_is_a_500_logged_and_counted_once(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("a defect of the test")

    part, name = (Canaries, "candidate") if path == "/v1/models" else (EngineLifecycle, "status")
    monkeypatch.setattr(part, name, property(fail))
    with caplog.at_level(logging.ERROR):
        response = httpx.get(f"{gateway.url}{path}", headers=admin_headers(gateway), timeout=TIMEOUT_S)
        wait_until(lambda: bool(tracebacks(caplog)))
    monkeypatch.undo()
    assert (response.status_code, response.json()["error"]["code"]) == (500, "internal_error")
    assert tracebacks(caplog) == ["a defect of the test"]
    assert defects(gateway) == 1
