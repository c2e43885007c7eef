"""``tool`` in loops of an app's own, against the SDK's in-memory exporter."""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spanloop.instrumentation import tool
from spanloop.instrumentation.calls import model_calls
from spanloop.instrumentation.calls.model_call_processor import ModelCallProcessor
from spanloop.instrumentation.calls.threads import carry_context_into_threads

CONTENT_ENV = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    provider.add_span_processor(ModelCallProcessor())
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    monkeypatch.delenv(CONTENT_ENV, raising=False)
    yield memory
    model_calls.remember(None)


@tool
def get_weather(city: str, days: int = 1) -> str:
    """Tell the weather."""
    if city == "Atlantis":
        raise KeyError(city)
    return f"{city}: {days} sunny days"


def answer(*calls: tuple[str, str, dict[str, Any]], trace_of: str = "") -> str:
    """Record a model call whose answer asks for tools (id, name, arguments); return its trace id."""
    parts = [
        {"type": "tool_call", "id": identity, "name": name, "arguments": arguments}
        for identity, name, arguments in calls
    ]
    span = trace.get_tracer("openai").start_span(f"chat {trace_of}")
    span.set_attribute("gen_ai.request.model", "m")
    span.set_attribute("gen_ai.output.messages", json.dumps([{"role": "assistant", "parts": parts}]))
    span.end()
    return f"{span.get_span_context().trace_id:x}"


def tools(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name.startswith("execute_tool")]


def ids(exporter: InMemorySpanExporter) -> list[str]:
    return [str((span.attributes or {}).get("gen_ai.tool.call.id", "")) for span in tools(exporter)]


def test_a_call_has_name_arguments_result_and_the_id_of_the_models_call(exporter: InMemorySpanExporter) -> None:
    trace_id = answer(("c1", "get_weather", {"city": "Oslo", "days": 2}))
    assert get_weather("Oslo", days=2) == "Oslo: 2 sunny days"
    (span,) = tools(exporter)
    assert dict(span.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "get_weather",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": '{"city": "Oslo", "days": 2}',
        "gen_ai.tool.call.result": "Oslo: 2 sunny days",
    }
    assert span.context is not None
    assert f"{span.context.trace_id:x}" == trace_id


def test_an_exception_passes_and_is_recorded(exporter: InMemorySpanExporter) -> None:
    with pytest.raises(KeyError):
        get_weather("Atlantis")
    (span,) = tools(exporter)
    assert (span.attributes or {})["error.type"] == "KeyError"


def test_parallel_calls_of_one_tool_are_told_by_their_arguments(exporter: InMemorySpanExporter) -> None:
    answer(("c1", "get_weather", {"city": "Oslo"}), ("c2", "get_weather", {"city": "Rome"}))
    for city in ("Rome", "Oslo"):
        get_weather(city=city)
    assert ids(exporter) == ["c2", "c1"]


def test_equal_calls_have_an_id_each(exporter: InMemorySpanExporter) -> None:
    answer(("c1", "get_weather", {"city": "Oslo"}), ("c2", "get_weather", {"city": "Oslo"}))
    for _ in range(3):
        get_weather("Oslo")
    assert ids(exporter) == ["c1", "c2", ""]


def test_an_argument_that_the_app_adds_does_not_cost_the_id(exporter: InMemorySpanExporter) -> None:
    answer(("c1", "get_weather", {"city": "Oslo"}), ("c2", "get_population", {"city": "Oslo"}))
    get_weather("Oslo", days=3)
    assert ids(exporter) == ["c1"]


def test_arguments_of_any_name_are_recorded_by_it(exporter: InMemorySpanExporter) -> None:
    @tool
    def search(query: str, **filters: str) -> str:
        return f"{query} {filters}"

    answer(("c1", "search", {"query": "a", "year": "2026"}), ("c2", "search", {"query": "b"}))
    search(query="a", year="2026")
    assert ids(exporter) == ["c1"]


def test_a_call_within_a_span_stays_in_it(exporter: InMemorySpanExporter) -> None:
    answer(("c1", "get_weather", {"city": "Oslo"}))
    with trace.use_span(trace.get_tracer("app").start_span("agent")) as agent:
        get_weather("Oslo")
    (span,) = tools(exporter)
    assert span.parent == agent.get_span_context()
    assert ids(exporter) == ["c1"]


async def test_concurrent_loops_keep_their_calls_apart(exporter: InMemorySpanExporter) -> None:
    @tool(name="get_weather")
    async def weather(city: str) -> str:
        await asyncio.sleep(0)
        return city

    async def loop(identity: str) -> tuple[str, str]:
        trace_id = answer((identity, "get_weather", {"city": "Oslo"}), trace_of=identity)
        await asyncio.sleep(0)
        await weather("Oslo")
        return identity, trace_id

    expected = dict(await asyncio.gather(*(loop(f"c{number}") for number in range(3))))
    found = {
        str((span.attributes or {})["gen_ai.tool.call.id"]): f"{span.context.trace_id:x}"
        for span in tools(exporter)
        if span.context
    }
    assert found == expected


def test_tools_in_a_pool_belong_to_the_call_before(
    exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading.Thread, "start", threading.Thread.start)  # restored at the end
    monkeypatch.setattr(ThreadPoolExecutor, "submit", ThreadPoolExecutor.submit)
    carry_context_into_threads()
    answer(("c1", "get_weather", {"city": "Oslo"}), ("c2", "get_weather", {"city": "Rome"}))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(get_weather, ("Oslo", "Rome")))
    assert sorted(ids(exporter)) == ["c1", "c2"]


@pytest.mark.parametrize("output", ["", "not JSON", '["text"]'], ids=["absent", "no JSON", "no messages"])
def test_an_answer_that_cannot_be_read_gives_no_id(
    exporter: InMemorySpanExporter, output: str, told: list[str]
) -> None:
    span = trace.get_tracer("openai").start_span("chat")
    span.set_attributes({"gen_ai.request.model": "m", "gen_ai.output.messages": output})
    span.end()
    assert get_weather("Oslo")
    assert ids(exporter) == [""]
    assert len(told) <= 1


def test_without_content_the_id_is_recorded_alone(
    exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONTENT_ENV, "false")
    answer(("c1", "get_weather", {"city": "Oslo"}))
    get_weather("Oslo")
    (span,) = tools(exporter)
    assert set(span.attributes or {}) == {"gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.tool.call.id"}


def test_arguments_of_any_kind_change_nothing(exporter: InMemorySpanExporter, told: list[str]) -> None:
    class Shop:
        @tool
        def price(self, item: object, *more: object) -> int:
            return len((item, *more))

    assert Shop().price(object(), {1, 2}, b"x") == 3
    with pytest.raises(TypeError):
        Shop().price()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert len(tools(exporter)) == 2
    assert not told
