"""A shadow: copies of calls that the candidate answers to nobody, and how its answers compare with the champion's."""
# pyright: reportPrivateUsage=false

import json
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from spanloop.gateway.canary.shadow_answer import KIND, ShadowAnswer, decode_shadow
from spanloop.gateway.chat.answers import Agreement, Answer, AnswerBuilder, ToolCall

from .support import WORDS, RunningGateway, StandIn, data_of, serving, wait_until, write_model

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
        },
    },
    {"type": "function", "function": {"name": "odd", "parameters": {"$ref": "https://nowhere.invalid/schema"}}},
]


@pytest.fixture
def candidate(tmp_path: Path) -> StandIn:
    return StandIn(write_model(tmp_path / "models" / "v2", 2), first_id=10**6)


@pytest.fixture
def start_shadow(gateway: RunningGateway, candidate: StandIn, tmp_path: Path) -> Generator[Callable[[], None]]:
    with serving(candidate.app()) as url:

        def start() -> None:
            body = {"name": "m", "version": "v2", "path": str(tmp_path / "models" / "v2"), "upstream": url}
            assert gateway.admin("canary", **body, share=1, is_shadow=True).status_code == 200

        yield start
        gateway.admin("canary/stop")


def stored(gateway: RunningGateway, count: int) -> list[ShadowAnswer]:
    recorder, found = gateway.gateway.recorder, list[ShadowAnswer]()

    def enough() -> bool:
        with recorder._drain_lock:
            while (batch := recorder._spool.read(1 << 20)) is not None:
                found.extend(decode_shadow(record.body) for record in batch.records if record.kind == KIND)
                recorder._spool.commit(batch)
        return len(found) >= count

    wait_until(enough)
    return found


@pytest.mark.parametrize("stream", [False, True])
def test_no_shadow_answer_reaches_a_caller(
    gateway: RunningGateway, start_shadow: Callable[[], None], candidate: StandIn, *, stream: bool
) -> None:
    start_shadow()
    response = gateway.chat(
        headers={"x-session-id": "s"}, stream=stream, logprobs=True, top_logprobs=2, tools=TOOLS, temperature=0.5
    )
    assert (data_of(response)[0] if stream else response.json())["model"] == "stand-in@external"
    (answer,) = stored(gateway, 1)
    assert candidate.requests[-1] == {
        "messages": [{"role": "user", "content": "hi"}], "model": "stand-in", "tools": TOOLS, "temperature": 0.5,
    }  # fmt: skip
    assert (answer.candidate, answer.champion, answer.agreement) == ("m@v2", "stand-in@external", "same")
    assert json.loads(answer.answer) == json.loads(answer.champion_answer) == {"text": "".join(WORDS), "tool_calls": []}
    assert (answer.is_valid, answer.champion_is_valid, answer.error) == (True, True, "")
    assert answer.latency_s > 0
    assert answer.champion_latency_s > 0


def test_a_candidate_that_fails_or_hangs_costs_the_caller_nothing(
    gateway: RunningGateway, start_shadow: Callable[[], None], candidate: StandIn
) -> None:
    start_shadow()
    candidate.error_response = (500, {"error": {"message": "out of memory"}})
    assert gateway.chat().status_code == 200
    (failed,) = stored(gateway, 1)
    assert failed.error.startswith("status 500")
    assert (failed.answer, failed.agreement) == ("", "")
    candidate.error_response, candidate.paused = None, True
    for _ in range(12):
        assert gateway.chat().status_code == 200
    wait_until(lambda: candidate.running == 8)
    wait_until(lambda: gateway.gateway.metrics.get("shadow_skipped_total") == 4)
    candidate.paused = False
    assert len(stored(gateway, 8)) == 8


def test_every_answer_is_the_champions_and_a_call_that_names_the_candidate_gets_it(
    gateway: RunningGateway, start_shadow: Callable[[], None]
) -> None:
    start_shadow()
    assert gateway.chat(headers={"x-session-id": "new"}).json()["model"] == "stand-in@external"
    assert gateway.chat(model="m@v2").json()["model"] == "m@v2"
    assert len(stored(gateway, 1)) == 1


def called(*calls: tuple[str, str], text: str = "") -> Answer:
    return Answer(text, tuple(ToolCall(*call) for call in calls))


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (called(text="a  b\n"), called(text="a b"), Agreement.SAME),
        (called(text="a"), called(text="b"), Agreement.DIFFERENT),
        (called(("add", '{"a": 1, "b": 2}')), called(("add", '{"b":2,"a":1}'), text="so"), Agreement.SAME),
        (called(("add", '{"a": 1}')), called(("add", '{"a": 2}')), Agreement.SAME_TOOLS),
        (called(("add", "{}")), called(("sub", "{}")), Agreement.DIFFERENT),
        (called(("add", "{}")), called(text="3"), Agreement.DIFFERENT),
    ],
)
def test_agreement(ours: Answer, theirs: Answer, expected: Agreement) -> None:
    assert ours.agreement(theirs) is expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (("add", '{"a": 1}'), True),
        (("add", '{"a": "1"}'), False),
        (("add", "{}"), False),
        (("add", "{"), False),
        (("add", "[1]"), False),
        (("sub", '{"a": 1}'), False),
        (("odd", "{}"), True),
    ],
)
def test_a_valid_call_names_a_tool_and_fits_its_schema(call: tuple[str, str], *, expected: bool) -> None:
    assert called(call).has_valid_calls(TOOLS) is expected
    assert called(text="no call").has_valid_calls(None)


def test_a_stream_gives_the_same_answer_as_a_whole_response() -> None:
    def function(**fields: str) -> dict[str, Any]:
        return {"index": 0, "function": fields}

    deltas: list[dict[str, Any]] = [
        {"content": "a"},
        {"content": None, "tool_calls": [function(name="add", arguments="")]},
        {"tool_calls": [function(arguments='{"a"')]},
        {"tool_calls": [function(arguments=": 1}")]},
    ]
    streamed, whole = AnswerBuilder(), AnswerBuilder()
    for delta in deltas:
        streamed.add({"choices": [{"index": 0, "delta": delta}, {"index": 1, "delta": {"content": "other"}}]})
    streamed.add({"choices": [], "usage": {}})
    call = {"type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    whole.add({"choices": [{"index": 0, "message": {"content": "a", "tool_calls": [call]}}]})
    assert streamed.build() == whole.build() == called(("add", '{"a": 1}'), text="a")
