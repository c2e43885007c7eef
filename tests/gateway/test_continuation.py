"""Conversations through the gateway go on from the exact ids that the engine saw and sampled."""

from collections.abc import Callable, Generator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.paths import DataDir
from spanloop.gateway.continuation.alignment import Spans
from spanloop.gateway.continuation.conversation_log import CaptureReference, ConversationLog
from spanloop.gateway.continuation.conversations import Conversations, Exact

from .rendering_engine import RenderingEngine, write_rendering_model
from .support import TIMEOUT_S, RunningGateway, StandIn, data_of, serving, wait_until, write_model

USER = {"role": "user", "content": "find the weather"}
Start = Callable[..., RunningGateway]


@pytest.fixture
def engine(tmp_path: Path) -> RenderingEngine:
    return RenderingEngine(write_rendering_model(tmp_path / "models" / "v1"), texts=[f"here {n}" for n in range(99)])


@pytest.fixture
def gateway(start_gateway: Start, engine: RenderingEngine) -> Generator[RunningGateway]:
    with serving(engine.app()) as url:
        running = start_gateway(upstream=url)
        wait_until(lambda: running.health()["engine"] == "serving")
        yield running


def ask(
    gateway: RunningGateway, messages: list[Any], *, stream: bool = False, headers: dict[str, str] | None = None
) -> httpx.Response:
    body = {"messages": messages, "stream": stream}
    response = httpx.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers, timeout=TIMEOUT_S)
    assert response.status_code == 200, response.text
    return response


def answer_of(response: httpx.Response) -> dict[str, Any]:
    if response.headers["content-type"] == "application/json":
        message: dict[str, Any] = response.json()["choices"][0]["message"]
        return message
    return {**data_of(response)[0]["choices"][0]["delta"], "role": "assistant"}


@pytest.mark.parametrize("stream", [False, True])
def test_each_prompt_begins_with_the_prompt_and_the_answer_before(
    gateway: RunningGateway, engine: RenderingEngine, *, stream: bool
) -> None:
    assert gateway.health()["continuation"] == "exact"
    renders = engine.renders
    messages: list[Any] = [USER]
    for turn in range(8):
        response = ask(gateway, messages, stream=stream)
        assert "x-spanloop-history" not in response.headers
        messages += [answer_of(response), {"role": "user", "content": f"and {turn}"}]
    captures = gateway.captures()
    assert [capture.prompt_token_ids for capture in captures] == engine.prompts
    for before, after in pairwise(captures):
        sampled = before.prompt_token_ids + before.response_token_ids
        assert after.prompt_token_ids[: len(sampled)] == sampled
    assert engine.text_of(engine.prompts[-1]) == engine.renderer.text(messages[:-2])
    assert engine.prompts[-1] != engine.renderer.ids(messages[:-2])
    assert engine.renders - renders == 7
    assert 'continuations_total{history="whole"} 7' in httpx.get(f"{gateway.url}/metrics", timeout=TIMEOUT_S).text


def test_a_tool_call_that_the_parser_wrote_again_is_continued(gateway: RunningGateway, engine: RenderingEngine) -> None:
    engine.texts[0] = '\n<tool_call>{"name":"find","arguments":{"city":"Paris"}}</tool_call>'
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"city": "Paris"}'}}
    engine.calls_of = [call, None]
    messages = [USER, answer_of(ask(gateway, [USER])), {"role": "tool", "tool_call_id": "c1", "content": "found"}]
    ask(gateway, messages)
    first, second = gateway.captures()
    sampled = first.prompt_token_ids + first.response_token_ids
    assert second.prompt_token_ids[: len(sampled)] == sampled
    assert engine.text_of(second.prompt_token_ids).endswith("found<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "written",
    [
        '<tool_call>\n{"name": "find", "arguments": {"city": "Paris"}, "target": {"type": "x"}}',
        '<tool_call>\n{"name": "find", "arguments": {"city": "Oslo", "city": "Paris"}}\n</tool_call>\nThat is Paris.',
    ],
)
def test_an_answer_that_the_client_returns_as_it_received_it_is_continued_whole(
    gateway: RunningGateway, engine: RenderingEngine, written: str, *, stream: bool
) -> None:
    engine.texts[:2] = [written, written]
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"city":"Paris"}'}}
    engine.calls_of = [call, call, None, None]
    messages: list[Any] = [USER]
    for turn in range(4):
        response = ask(gateway, messages, stream=stream)
        assert "x-spanloop-history" not in response.headers
        result = {"role": "tool", "tool_call_id": "c1", "content": f"found {turn}"}
        messages += [answer_of(response), result if turn < 2 else USER]
    for before, after in pairwise(gateway.captures()):
        sampled = before.prompt_token_ids + before.response_token_ids
        assert after.prompt_token_ids[: len(sampled)] == sampled


def test_a_call_that_the_client_edited_is_not_continued(gateway: RunningGateway, engine: RenderingEngine) -> None:
    engine.texts[0] = '<tool_call>\n{"name": "find", "arguments": {"city": "Paris"}, "target": 1}'
    engine.calls_of = [{"id": "c1", "function": {"name": "find", "arguments": '{"city": "Paris"}'}}, None]
    ask(gateway, [USER])
    edited = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"city": "Oslo"}'}}
    tool = {"role": "tool", "tool_call_id": "c1", "content": "found"}
    response = ask(gateway, [USER, {"role": "assistant", "content": "", "tool_calls": [edited]}, tool])
    assert "x-spanloop-history" in response.headers
    assert "Oslo" in engine.text_of(engine.prompts[-1])
    assert "target" not in engine.text_of(engine.prompts[-1])


def test_a_client_may_leave_out_earlier_reasoning(gateway: RunningGateway, engine: RenderingEngine) -> None:
    engine.texts = [f"<think>\nthen {n}\n</think>\n\nhere {n}" if n < 2 else f"here {n}" for n in range(9)]
    messages: list[Any] = [USER]
    for _ in range(2):
        first = answer_of(ask(gateway, messages))
        messages = [*({**each, "reasoning": None} for each in messages), first, USER]
    ask(gateway, messages)
    before = gateway.captures()[1]
    sampled = before.response_token_ids[-len("here 1") - 1 :]  # it samples one character a token, and a mark
    prompt = engine.prompts[-1]
    assert any(prompt[at : at + len(sampled)] == sampled for at in range(len(prompt)))


def test_a_version_may_keep_the_thinking_of_earlier_turns(start_gateway: Start, tmp_path: Path) -> None:
    folder = write_rendering_model(tmp_path / "models" / "keeping")
    (folder / "tokenizer_config.json").write_text('{"thinking": "keep"}')
    texts = [f"<think>\nthen {n}\n</think>\n\nhere {n}" for n in range(8)]
    engine = RenderingEngine(folder, family="qwen3", texts=texts)
    with serving(engine.app()) as url:
        running = start_gateway(upstream=url)
        wait_until(lambda: running.health()["engine"] == "serving")
        messages: list[Any] = [USER]
        for _ in range(8):
            response = ask(running, messages)
            assert "x-spanloop-history" not in response.headers
            messages += [answer_of(response), USER]
        for before, after in pairwise(running.captures()):
            sampled = before.prompt_token_ids + before.response_token_ids
            assert after.prompt_token_ids[: len(sampled)] == sampled
    assert "then 0" in engine.text_of(engine.prompts[-1])
    assert "then 0" not in engine.renderer.text(messages)


def test_rollouts_of_one_prompt_go_on_from_their_own_answers(gateway: RunningGateway, engine: RenderingEngine) -> None:
    engine.family = "qwen3"
    engine.texts = [f"<think>\nthen {n}\n</think>\n\nhere {n % 8}" for n in range(99)]
    rollouts: list[list[Any]] = [[USER] for _ in range(8)]
    last: list[list[int]] = [[] for _ in rollouts]
    for _ in range(8):
        for number, messages in enumerate(rollouts):
            response = ask(gateway, messages)
            assert engine.prompts[-1][: len(last[number])] == last[number]
            capture = gateway.captures()[-1]
            last[number] = capture.prompt_token_ids + capture.response_token_ids
            reasoning = engine.texts[len(engine.prompts) - 1].split("\n")[1]
            tool = {"role": "tool", "tool_call_id": "c1", "content": "found"}
            messages += [{**answer_of(response), "reasoning": reasoning}, tool]


def test_an_edited_history_keeps_its_beginning_and_says_where(gateway: RunningGateway, engine: RenderingEngine) -> None:
    first = answer_of(ask(gateway, [USER]))
    ask(gateway, [USER, first, USER])
    edited = [USER, {**first, "content": "here and nothing"}, USER]
    response = ask(gateway, edited)
    place = int(response.headers["x-spanloop-history"].removeprefix("differs after token "))
    prompt = gateway.captures()[0].prompt_token_ids
    assert len(prompt) < place < len(engine.prompts[-1])
    assert engine.prompts[-1][:place] == engine.prompts[-2][:place]
    assert engine.text_of(engine.prompts[-1]) == engine.renderer.text(edited)
    assert engine.text_of(engine.prompts[-1][:place]).endswith("here")


def test_a_conversation_stays_with_its_key(start_gateway: Start, engine: RenderingEngine, data_dir: DataDir) -> None:
    keys = [KeyRing(data_dir).create(name, [Scope.SERVE]).secret for name in ("a", "b")]
    with serving(engine.app()) as url:
        running = start_gateway(upstream=url)
        wait_until(lambda: running.health()["engine"] == "serving")
        own, other = ({"authorization": f"Bearer {secret}"} for secret in keys)
        messages = [USER, answer_of(ask(running, [USER], headers=own)), USER]
        ask(running, messages, headers=other)
        assert engine.prompts[-1] == engine.renderer.ids(messages)
        ask(running, messages, headers=own)
        assert engine.prompts[-1] != engine.renderer.ids(messages)


def test_another_version_with_an_unknown_tokenizer_starts_anew(
    gateway: RunningGateway, engine: RenderingEngine, tmp_path: Path
) -> None:
    engine.requests.clear()
    messages = [USER, answer_of(ask(gateway, [USER])), USER]
    folder = write_rendering_model(tmp_path / "models" / "v2", 2)
    assert gateway.admin("deploy", name="m", version="v2", path=str(folder)).status_code == 200
    ask(gateway, messages)
    assert engine.prompts[-1] == engine.renderer.ids(messages)


def test_without_memory_each_turn_is_rendered_by_the_engine(start_gateway: Start, engine: RenderingEngine) -> None:
    with serving(engine.app()) as url:
        running = start_gateway(upstream=url, conversation_bytes=0)
        wait_until(lambda: running.health()["engine"] == "serving")
        assert running.health()["continuation"] == "tokenised again: conversation_bytes is 0"
        messages = [USER, answer_of(ask(running, [USER])), USER]
        ask(running, messages)
        assert engine.prompts[-1] == engine.renderer.ids(messages)


def test_an_engine_without_ids_is_named(start_gateway: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving(StandIn(write_model(tmp_path / "v1", 1)).app()) as url:
        running = start_gateway(upstream=url)
        wait_until(lambda: running.health()["engine"] == "serving")
        assert running.health()["continuation"].startswith("tokenised again: the engine takes no token ids")
    assert "turns of a conversation are tokenised again" in caplog.text


def test_the_memory_of_conversations_is_bounded() -> None:
    conversations = Conversations(100_000)
    for number in range(1000):
        conversations.add(number.to_bytes(16), Exact([1] * 100, Spans(), b"answer"))
    assert 0 < conversations.size_bytes <= 100_000
    assert conversations.find([((0).to_bytes(16), b"answer")]) == []
    assert len(conversations.find([((999).to_bytes(16), b"answer")])) == 1
    for _ in range(200):
        conversations.add(b"same", Exact([1] * 10, Spans(), b"answer"))
    assert len(conversations.find([(b"same", b"")])) == 64


def test_a_restart_goes_on_from_stored_captures(
    stored_rows: Callable[[int], list[dict[str, Any]]], start_gateway: Start, engine: RenderingEngine
) -> None:
    with serving(engine.app()) as url:
        running = start_gateway(upstream=url)
        wait_until(lambda: running.health()["engine"] == "serving")
        messages = [USER, answer_of(ask(running, [USER])), USER]
        messages += [answer_of(ask(running, messages)), USER]
        rows = stored_rows(2)
        running.stop()
        again = start_gateway(upstream=url)
        wait_until(lambda: again.health()["engine"] == "serving")
        ask(again, messages)
    before = next(row for row in rows if row["prompt_token_ids"] == engine.prompts[1])
    sampled = [*before["prompt_token_ids"], *before["response_token_ids"]]
    assert engine.prompts[2][: len(sampled)] == sampled
    log = (again.data_dir.gateway / "conversations.jsonl").read_text()
    assert len(log.splitlines()) == 3
    assert "weather" not in log
    assert "here" not in log


def test_a_log_with_damaged_lines_is_read(tmp_path: Path) -> None:
    path = tmp_path / "conversations.jsonl"
    reference = CaptureReference("chatcmpl-1/0", b"answer", Spans(((3, 5),)))
    log = ConversationLog(path)
    log.append(b"digest", reference)
    log.close()
    path.write_bytes(path.read_bytes() + b'[1, 2]\n{"a": 1}\n["00", "x"')
    again = ConversationLog(path, limit=1)
    assert again.find([(b"other", b""), (b"digest", b"")]) == (b"digest", [reference])
    again.append(b"newer", reference)
    assert again.find([(b"digest", b"")]) == (b"", [])
    again.close()
    assert len(path.read_bytes().splitlines()) == 2
