"""OTLP requests of traces that the pipeline converts: ten spans of 3 KB on average, of which five are model calls.

A trace is that of ``streamed/spans.sql``, under the same ids: an agent, five model calls that repeat their growing
history, four tool calls. The texts are random words, as in ``ingesting/load.py``. So ``streamed/generations.sql`` and
``streamed/scores.sql`` are the captures and rewards of every tenth trace.
"""

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ingesting.load import WORDS, pair
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from stream import BASE_NS, SPANS_A_TRACE

from spanloop.store.client import Connection

TRACES_A_REQUEST: Final = 50
_IDS: Final = """
SELECT
    lower(leftPad(hex(sipHash128('trace', number)), 32, '0')) AS trace_id,
    arrayMap(place -> lower(leftPad(hex(sipHash64('span', number * 10 + place)), 16, '0')), range(10)) AS span_ids
FROM numbers({traces:UInt64})
"""
_SYSTEM: Final = " ".join(WORDS[:60])
"""The agent's instructions are the same in each trace."""


def make_requests(connection: Connection, traces: int) -> list[bytes]:
    """Return the bodies of all requests, the same for every run."""
    ids = connection.query(_IDS, doing="making ids", parameters={"traces": traces}).rows()
    rng = random.Random(7)
    bodies: list[bytes] = []
    for first in range(0, traces, TRACES_A_REQUEST):
        request = ExportTraceServiceRequest()
        resource_spans = request.resource_spans.add()
        resource_spans.resource.attributes.extend([pair("service.name", "agent"), pair("host.name", "node-1")])
        spans = resource_spans.scope_spans.add().spans
        for number in range(first, min(first + TRACES_A_REQUEST, traces)):
            trace_id, span_ids = ids[number]
            spans.extend(_trace(rng, number, bytes.fromhex(trace_id), [bytes.fromhex(each) for each in span_ids]))
        bodies.append(request.SerializeToString())
    return bodies


def _trace(rng: random.Random, number: int, trace_id: bytes, span_ids: Sequence[bytes]) -> Iterator[Span]:
    for place, attributes in enumerate(_attributes(rng, number)):
        start_ns = BASE_NS + number * 50_000_000 + place * 400_000_000
        span = Span(
            trace_id=trace_id,
            span_id=span_ids[place],
            parent_span_id=span_ids[0] if place else b"",
            name=f"{attributes['gen_ai.operation.name']} clerk",
            kind=Span.SPAN_KIND_CLIENT if place % 2 else Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=start_ns,
            end_time_unix_nano=start_ns + rng.randrange(1, 300_000_000),
        )
        span.attributes.extend(pair(key, value) for key, value in attributes.items())
        yield span


def _attributes(rng: random.Random, number: int) -> Iterator[dict[str, str | float]]:
    common: dict[str, str | float] = {
        "session.id": f"session-{number // 4}",
        "server.address": "api.example.com",
    }
    yield common | {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "clerk",
        "spanloop.episode.id": f"episode-{number}",
        "spanloop.task.id": f"task-{number % 5_000}",
    }
    messages = [_message("system", {"type": "text", "content": _SYSTEM}), _message("user", _text(rng, 240))]
    for place in range(1, SPANS_A_TRACE):
        turn = (place - 1) // 2
        identity, query = f"c{number}-{turn}", _words(rng, 15)
        if place % 2:
            call = {"type": "tool_call", "id": identity, "name": "search", "arguments": {"query": query}}
            answer = _message("assistant", call if place < SPANS_A_TRACE - 1 else _text(rng, 60))
            yield common | _model_call(rng, number * SPANS_A_TRACE + place, messages, answer)
            messages.append(answer)
        else:
            result = _words(rng, 110)
            yield common | {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "search",
                "gen_ai.tool.call.id": identity,
                "gen_ai.tool.call.arguments": json.dumps({"query": query}),
                "gen_ai.tool.call.result": result,
            }
            part = {"type": "tool_call_response", "id": identity, "response": result}
            messages.append(_message("tool", part))


def _model_call(
    rng: random.Random, span: int, messages: Sequence[dict[str, Any]], answer: dict[str, Any]
) -> dict[str, str | float]:
    is_last = span % SPANS_A_TRACE == SPANS_A_TRACE - 1
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "tiny",
        "gen_ai.response.model": "tiny@v1",
        "gen_ai.response.id": f"r-{span}",
        "gen_ai.response.finish_reasons": '["stop"]' if is_last else '["tool_call"]',
        "gen_ai.request.temperature": 0.7,
        "gen_ai.usage.input_tokens": rng.randrange(20_000),
        "gen_ai.usage.output_tokens": rng.randrange(2_000),
        "gen_ai.input.messages": json.dumps(messages),
        "gen_ai.output.messages": json.dumps([answer]),
    }


def _message(role: str, part: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": [part]}


def _text(rng: random.Random, words: int) -> dict[str, Any]:
    return {"type": "text", "content": _words(rng, words)}


def _words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS, k=count))
