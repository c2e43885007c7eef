"""Tool calls of LangChain, openai-agents, CrewAI and Agno become spans. The fakes have the shape of their functions.

`make test-frameworks` runs the frameworks themselves.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Generator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spanloop.instrumentation.frameworks import agno, crewai, langchain, openai_agents, spans

NAME = "gen_ai.tool.name"
CALL_ID = "gen_ai.tool.call.id"
ARGUMENTS = "gen_ai.tool.call.arguments"
RESULT = "gen_ai.tool.call.result"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    monkeypatch.delenv("TRACELOOP_TRACE_CONTENT", raising=False)
    monkeypatch.delenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", raising=False)
    return memory


def _module(**members: object) -> ModuleType:
    module = ModuleType("fake")
    vars(module).update(members)
    return module


def _tools(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name.startswith("execute_tool")]


def _values(span: ReadableSpan) -> tuple[object, ...]:
    attributes = span.attributes or {}
    return tuple(attributes.get(key, "") for key in (NAME, CALL_ID, ARGUMENTS, RESULT, "error.type"))


def _report(city: str) -> str:
    return f"{city}: 7"


def _call(call: dict[str, Any]) -> tuple[Any, ...]:
    return call["id"], call["name"], call["arguments"]


def _fail(city: str) -> str:
    raise ValueError(f"no such city: {city}")


GraphBubbleUp = type("GraphBubbleUp", (Exception,), {})
"""LangGraph's, which its interrupts are of."""
Interrupt = type("Interrupt", (GraphBubbleUp,), {})


def _langchain_tool(function: Any) -> Any:
    class BaseTool:
        name = "weather"

        def run(self, tool_input: Any, **named: Any) -> Any:
            del named
            return SimpleNamespace(content=function(tool_input["city"]), status="success")

        async def arun(self, tool_input: Any, **named: Any) -> Any:
            return self.run(tool_input, **named)

        def _filter_injected_args(self, values: dict[str, Any]) -> dict[str, Any]:
            return {name: value for name, value in values.items() if name != "state"}

    langchain.trace_tools(_module(BaseTool=BaseTool, _handle_tool_error=str, _handle_validation_error=str))
    return BaseTool()


def test_langchain_tools_have_arguments_without_injected_ones_and_their_results(exporter: InMemorySpanExporter) -> None:
    tool = _langchain_tool(_report)
    tool.run({"city": "Oslo", "state": {"messages": []}}, tool_call_id="c1")
    asyncio.run(tool.arun({"city": "Rome"}, tool_call_id="c2"))
    # `arun` of the fake calls `run`: one span for the call, not two
    first, second = _tools(exporter)
    assert _values(first) == ("weather", "c1", '{"city": "Oslo"}', "Oslo: 7", "")
    assert _values(second)[:2] == ("weather", "c2")


def test_a_failed_langchain_tool_has_its_error_and_an_interrupt_is_none(exporter: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="no such city"):
        _langchain_tool(_fail).run({"city": "Nowhere"}, tool_call_id="c1")

    def interrupt(city: str) -> str:
        raise Interrupt(city)

    with pytest.raises(GraphBubbleUp):
        _langchain_tool(interrupt).run({"city": "Oslo"}, tool_call_id="c2")
    failed, interrupted = _tools(exporter)
    assert (_values(failed)[-1], _values(interrupted)[-1]) == ("ValueError", "")
    assert failed.events[0].name == "exception"


def test_a_graphs_run_is_the_parent_of_its_tools(exporter: InMemorySpanExporter) -> None:
    tool = _langchain_tool(_report)

    class Pregel:
        def get_name(self) -> str:
            return "researcher"

        def stream(self) -> Generator[Any]:
            yield tool.run({"city": "Oslo"}, tool_call_id="c1")

        async def astream(self) -> AsyncGenerator[Any, None]:
            yield tool.run({"city": "Rome"}, tool_call_id="c2")

    langchain.trace_graphs(_module(Pregel=Pregel))

    async def run() -> None:
        async for _ in Pregel().astream():
            pass

    list(Pregel().stream())
    asyncio.run(run())
    agents = [span for span in exporter.get_finished_spans() if span.name == "invoke_agent researcher"]
    parents = [span.parent.span_id for span in _tools(exporter) if span.parent]
    assert parents == [span.context.span_id for span in agents if span.context]


def test_a_tool_that_openai_agents_turns_into_text_keeps_its_exception(exporter: InMemorySpanExporter) -> None:
    module = _module()

    async def handle(*, function_tool: Any, context: Any, error: BaseException) -> Any:
        del function_tool, context
        return f"An error occurred: {error}"

    async def invoke(*, function_tool: Any, context: Any, arguments: str) -> Any:
        try:
            return function_tool.call(arguments)
        except ValueError as error:
            handler: Any = vars(module)["maybe_invoke_function_tool_failure_error_function"]
            return await handler(function_tool=function_tool, context=context, error=error)

    vars(module).update(invoke_function_tool=invoke, maybe_invoke_function_tool_failure_error_function=handle)
    openai_agents.trace_tools(module)
    call: Any = vars(module)["invoke_function_tool"]
    context = SimpleNamespace(tool_call_id="c1")
    tool = SimpleNamespace(name="weather", call=_fail)
    answer = asyncio.run(call(function_tool=tool, context=context, arguments='{"city": "X"}'))
    assert answer.startswith("An error occurred")
    (span,) = _tools(exporter)
    assert _values(span) == ("weather", "c1", '{"city": "X"}', answer, "ValueError")


def test_a_streamed_run_of_openai_agents_ends_with_its_task(exporter: InMemorySpanExporter) -> None:
    class AgentRunner:
        async def run(self, starting_agent: Any) -> str:
            return str(starting_agent.name)

        def run_streamed(self, starting_agent: Any) -> Any:
            return SimpleNamespace(run_loop_task=asyncio.ensure_future(self.run(starting_agent)))

    openai_agents.trace_runs(_module(AgentRunner=AgentRunner))

    async def run() -> None:
        result = AgentRunner().run_streamed(SimpleNamespace(name="reporter"))
        assert not exporter.get_finished_spans()
        await result.run_loop_task
        await asyncio.sleep(0)

    asyncio.run(run())
    assert [span.name for span in exporter.get_finished_spans()] == ["invoke_agent reporter"] * 2


def test_an_exception_that_agno_only_logs_is_recorded(exporter: InMemorySpanExporter) -> None:
    module = _module(log_exception=str)

    class FunctionCall:
        function = SimpleNamespace(name="weather")
        arguments = {"city": "Nowhere"}  # noqa: RUF012
        call_id = "c1"

        def execute(self) -> Any:
            try:
                _fail("Nowhere")
            except ValueError as error:
                vars(module)["log_exception"](error)
                return SimpleNamespace(status="failure", error=str(error), result=None)

        async def aexecute(self) -> Any:
            return SimpleNamespace(status="success", error=None, result="7 degrees")

    vars(module)["FunctionCall"] = FunctionCall
    agno.trace_tools(module)
    FunctionCall().execute()
    asyncio.run(FunctionCall().aexecute())
    failed, done = _tools(exporter)
    assert _values(failed) == ("weather", "c1", '{"city": "Nowhere"}', "", "ValueError")
    assert _values(done)[-2:] == ("7 degrees", "")


def test_crewais_calls_have_ids_results_and_errors(
    exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    utilities = _module(extract_tool_call_info=_call)
    monkeypatch.setitem(sys.modules, "crewai.utilities.agent_utils", utilities)

    class Tool:
        def run(self, city: str) -> str:
            return _fail(city) if city == "Nowhere" else f"{city}: 7"

    class AgentExecutor:
        def _execute_single_native_tool_call(self, tool_call: Any) -> dict[str, Any]:
            try:
                return {"result": Tool().run(tool_call["arguments"]["city"]), "tool_failure": None}
            except ValueError as error:
                return {"result": f"Error: {error}", "tool_failure": SimpleNamespace(message=str(error))}

        def call(self, call_id: str, city: str) -> object:
            return self._execute_single_native_tool_call(
                {"id": call_id, "name": "weather", "arguments": {"city": city}}
            )

    crewai.trace_native_calls(_module(AgentExecutor=AgentExecutor))
    crewai.trace_errors(_module(BaseTool=type("BaseTool", (), {"run": Tool.run}), Tool=Tool))
    AgentExecutor().call("c1", "Nowhere")
    AgentExecutor().call("c2", "Oslo")
    failed, done = _tools(exporter)
    assert _values(failed)[1:] == ("c1", '{"city": "Nowhere"}', "Error: no such city: Nowhere", "ValueError")
    assert _values(done)[1:] == ("c2", '{"city": "Oslo"}', "Oslo: 7", "")


@pytest.mark.parametrize(
    "attributes",
    [{"openinference.span.kind": "TOOL", "tool.name": "weather"}, {"traceloop.span.kind": "tool"}],
    ids=["openinference", "openllmetry"],
)
def test_another_instrumentors_span_of_the_call_gets_the_error_and_no_second_span(
    attributes: dict[str, str], exporter: InMemorySpanExporter
) -> None:
    with (
        trace.get_tracer("other").start_as_current_span("weather", attributes=attributes),
        spans.tool_span("weather", call_id="c1") as span,
    ):
        span.fail(ValueError("no such city"))
    (only,) = exporter.get_finished_spans()
    assert (only.name, (only.attributes or {})["error.type"]) == ("weather", "ValueError")


def test_a_tool_that_another_tool_calls_has_a_span_of_its_own(exporter: InMemorySpanExporter) -> None:
    with spans.tool_span("ask_researcher"), spans.tool_span("weather"):
        pass
    assert [span.name for span in exporter.get_finished_spans()] == [
        "execute_tool weather",
        "execute_tool ask_researcher",
    ]


def test_without_content_a_span_has_neither_arguments_nor_result(
    exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACELOOP_TRACE_CONTENT", "false")
    _langchain_tool(_report).run({"city": "Oslo"}, tool_call_id="c1")
    assert _values(_tools(exporter)[0]) == ("weather", "c1", "", "", "")
