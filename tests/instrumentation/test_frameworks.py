"""Frameworks' tool calls and runs become spans. The fakes have the shape of each framework's own functions.

`make test-frameworks` runs the frameworks themselves.
"""

import asyncio
import inspect
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spanloop.instrumentation import frameworks
from spanloop.instrumentation.frameworks import (
    ag2,
    agentscope,
    dspy,
    google_adk,
    haystack,
    llama_index,
    mistralai,
    pydantic_ai,
    smolagents,
    spans,
    watch_frameworks,
)

CONTENT_ENV = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


class Recorded(NamedTuple):
    """What a span says."""

    name: str
    call_id: str
    arguments: str
    result: str
    error_type: str
    parent: str


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    monkeypatch.delenv(CONTENT_ENV, raising=False)
    return memory


def recorded(exporter: InMemorySpanExporter) -> dict[str, Recorded]:
    """Call id, or the span's name where it has none → its span."""
    ended = exporter.get_finished_spans()
    names = {span.context.span_id: span.name for span in ended if span.context}
    found = [_recorded(span, names) for span in ended]
    return {span.call_id or span.name: span for span in found}


def _recorded(span: ReadableSpan, names: dict[int, str]) -> Recorded:
    values = {key: str(value) for key, value in (span.attributes or {}).items()}
    return Recorded(
        span.name,
        values.get("gen_ai.tool.call.id", ""),
        values.get("gen_ai.tool.call.arguments", ""),
        values.get("gen_ai.tool.call.result", ""),
        values.get("error.type", ""),
        names.get(span.parent.span_id, "") if span.parent else "",
    )


def module(name: str, **members: Any) -> ModuleType:
    """A framework's module."""
    made = ModuleType(name)
    vars(made).update(members)
    return made


def test_ag2(exporter: InMemorySpanExporter) -> None:
    async def execute(context: object, call: Any) -> Any:
        del context
        if call.name == "bad":
            return SimpleNamespace(error=ValueError("no such city"))
        return SimpleNamespace(error=None, result=SimpleNamespace(parts=[SimpleNamespace(content="7 degrees")]))

    class Agent:
        name = "reporter"

        @asynccontextmanager
        async def _turn_scope(self, calls: list[Any]) -> AsyncGenerator[Callable[[], Awaitable[Any]]]:
            async def drive() -> None:
                for call in calls:
                    await executor._execute_call("context", call)  # pyright: ignore[reportPrivateUsage]

            yield drive

    async def run() -> None:
        calls = [SimpleNamespace(name=name, id=name, arguments='{"city": "Oslo"}') for name in ("bad", "good")]
        agent: Any = Agent()
        async with agent._turn_scope(calls) as drive:
            await drive()

    executor: Any = module("ag2.tools.executor", _execute_call=execute)
    ag2.trace_tools(executor)
    ag2.trace_runs(module("ag2.agent", Agent=Agent))
    asyncio.run(run())
    got = recorded(exporter)
    above = "invoke_agent reporter"
    assert got["bad"] == Recorded("execute_tool bad", "bad", '{"city": "Oslo"}', "", "ValueError", above)
    assert got["good"] == Recorded("execute_tool good", "good", '{"city": "Oslo"}', "7 degrees", "", above)


class ToolInvocationError(Exception):
    """Haystack's."""


class HaystackTool:
    """Haystack's tool."""

    async_function = None

    def __init__(self, name: str, function: Callable[..., object]) -> None:
        self.name = name
        self.function = function

    def invoke(self, **named: object) -> object:
        try:
            return self.function(**named)
        except Exception as error:
            raise ToolInvocationError(str(error)) from error

    async def invoke_async(self, **named: object) -> object:
        return await asyncio.to_thread(self.invoke, **named)


def _no_such_city(city: str) -> str:
    raise ValueError(f"no such city: {city}")


def test_haystack(exporter: InMemorySpanExporter) -> None:
    class Tool(HaystackTool):
        """A class of this test alone: it is wrapped."""

        invoke = HaystackTool.invoke
        invoke_async = HaystackTool.invoke_async

    def create(tool: Tool, tool_call: Any, parent_span: object) -> None:
        del tool, tool_call, parent_span

    haystack.trace_tools(module("haystack.tools.tool", Tool=Tool))
    calling: Any = module("haystack.components.agents.tool_calling", _create_tool_span=create)
    haystack.trace_call_ids(calling)

    def ask_inner(city: str) -> object:
        return inner.invoke(city=city)

    inner, outer = Tool("inner", "{city}: 7 degrees".format), Tool("outer", ask_inner)

    async def call() -> object:
        calling._create_tool_span(outer, SimpleNamespace(id="call_1"), None)
        return await outer.invoke_async(city="Oslo")

    assert asyncio.run(call()) == "Oslo: 7 degrees"
    with pytest.raises(ToolInvocationError):
        Tool("bad", _no_such_city).invoke(city="Atlantis")
    got = recorded(exporter)
    assert got["call_1"] == Recorded("execute_tool outer", "call_1", '{"city": "Oslo"}', "Oslo: 7 degrees", "", "")
    assert got["execute_tool inner"].parent == "execute_tool outer"
    assert got["execute_tool bad"].error_type == "ValueError"


WaitingForEvent: type[Exception] = type("WaitingForEvent", (Exception,), {})
"""LlamaIndex's."""


def _step(function: Callable[..., Any]) -> Any:
    vars(function)["_step_config"] = "config"
    return function


def test_llama_index(exporter: InMemorySpanExporter) -> None:
    class BaseWorkflowAgent:
        name = "reporter"

        @_step
        async def call_tool(self, ctx: object, ev: Any) -> Any:
            del ctx
            if ev.tool_name == "waits":
                raise WaitingForEvent
            failed = ev.tool_name == "bad"
            error = ValueError("no such city") if failed else None
            return SimpleNamespace(tool_output=SimpleNamespace(is_error=failed, exception=error, content="7 degrees"))

        def run(self, *names: str) -> Any:
            events = [SimpleNamespace(tool_name=name, tool_id=name, tool_kwargs={"city": "Oslo"}) for name in names]
            return SimpleNamespace(_result_task=asyncio.ensure_future(self._run(events)))

        async def _run(self, events: list[Any]) -> None:
            for event in events:
                await self.call_tool("context", ev=event)

    llama_index.trace_agents(module("base_agent", BaseWorkflowAgent=BaseWorkflowAgent))
    assert BaseWorkflowAgent.call_tool._step_config == "config"

    async def run() -> None:
        await BaseWorkflowAgent().run("bad", "good")._result_task
        with pytest.raises(WaitingForEvent):
            await BaseWorkflowAgent().run("waits")._result_task

    asyncio.run(run())
    got = recorded(exporter)
    above = "invoke_agent reporter"
    assert got["bad"] == Recorded("execute_tool bad", "bad", '{"city": "Oslo"}', "", "ValueError", above)
    assert (got["good"].result, got["good"].error_type) == ("7 degrees", "")
    assert got["waits"].error_type == ""


def test_a_selected_tool_of_llama_index(exporter: InMemorySpanExporter) -> None:
    def call(tool_call: Any, tools: object) -> Any:
        del tool_call, tools
        return SimpleNamespace(is_error=False, content="7 degrees")

    async def acall(tool_call: Any, tools: object) -> Any:
        return call(tool_call, tools)

    calling: Any = module("calling", call_tool_with_selection=call, acall_tool_with_selection=acall)
    llama_index.trace_selected_tools(calling)
    one, two = (SimpleNamespace(tool_name="f", tool_id=name, tool_kwargs={}) for name in ("one", "two"))
    calling.call_tool_with_selection(one, [])
    asyncio.run(calling.acall_tool_with_selection(tool_call=two, tools=[]))
    got = recorded(exporter)
    assert [got[name].result for name in ("one", "two")] == ["7 degrees", "7 degrees"]


def test_agentscope(exporter: InMemorySpanExporter) -> None:
    class ToolBase:
        async def __call__(self, name: str) -> Any:
            if name == "bad":
                raise ValueError("no such city")
            return _response("error" if name == "denied" else "success", "7 degrees")

    class Toolkit:
        async def call_tool(self, tool_call: Any, state: object) -> AsyncGenerator[Any, None]:
            del state
            try:
                yield await ToolBase()(tool_call.name)
            except ValueError as error:
                yield _response("error", str(error))

    class Agent:
        name = "reporter"

        async def _reply(self, names: tuple[str, ...]) -> AsyncGenerator[Any, None]:
            for name in names:
                async for chunk in Toolkit().call_tool(SimpleNamespace(name=name, id=name, input="{}"), "state"):
                    yield chunk

    def _response(state: str, text: str) -> Any:
        return SimpleNamespace(state=SimpleNamespace(value=state), content=[SimpleNamespace(text=text)])

    async def run() -> list[bool]:
        agent: Any = Agent()
        replies: AsyncGenerator[Any, None] = agent._reply(("bad", "good", "denied"))
        return [trace.get_current_span() is trace.INVALID_SPAN async for _ in replies]

    agentscope.trace_tools(module("agentscope.tool", Toolkit=Toolkit, ToolBase=ToolBase))
    agentscope.trace_runs(module("agentscope.agent", Agent=Agent))
    assert asyncio.run(run()) == [True, True, True], "no span of ours is current while the app consumes the reply"
    got = recorded(exporter)
    assert got["bad"] == Recorded("execute_tool bad", "bad", "{}", "", "ValueError", "invoke_agent reporter")
    assert (got["good"].result, got["good"].error_type) == ("7 degrees", "")
    assert got["denied"].error_type == spans.UNKNOWN_ERROR


def bad() -> str:
    raise ValueError("no such city")


async def worse() -> str:
    raise ValueError("no such country")


def good() -> str:
    return "7 degrees"


def test_agentscope_1(exporter: InMemorySpanExporter) -> None:
    class Toolkit:
        def __init__(self) -> None:
            self.tools: dict[str, Any] = {}

        def register_tool_function(self, function: Any) -> None:
            self.tools[function.__name__] = SimpleNamespace(original_func=function)

        async def call_tool_function(self, tool_call: dict[str, Any]) -> AsyncGenerator[Any, None]:
            function = self.tools[tool_call["name"]].original_func
            try:
                text = await function() if inspect.iscoroutinefunction(function) else function()
            except ValueError as error:
                text = f"Error: {error}"
            return _chunks(text)

    async def _chunks(text: str) -> AsyncGenerator[Any, None]:
        yield SimpleNamespace(content=[{"type": "text", "text": text}])

    class AgentBase:
        name = "reporter"

        async def __call__(self) -> list[str]:
            toolkit: Any = Toolkit()
            texts: list[str] = []
            for function in (bad, worse, good):
                toolkit.register_tool_function(function)
                name = function.__name__
                chunks = await toolkit.call_tool_function({"name": name, "id": name, "input": {}})
                texts += [chunk.content[0]["text"] async for chunk in chunks]
            return texts

    agentscope.trace_tools(module("agentscope.tool", Toolkit=Toolkit))
    agentscope.trace_runs(module("agentscope.agent", AgentBase=AgentBase))
    texts = asyncio.run(AgentBase()())
    assert texts == ["Error: no such city", "Error: no such country", "7 degrees"]
    got = recorded(exporter)
    assert [got[name].error_type for name in ("bad", "worse", "good")] == ["ValueError", "ValueError", ""]
    assert got["good"] == Recorded("execute_tool good", "good", "{}", "7 degrees", "", "invoke_agent reporter")


def test_smolagents(exporter: InMemorySpanExporter) -> None:
    class MultiStepAgent:
        name = "reporter"

        def run(self, calls: list[Any], *, stream: bool = False) -> Any:
            steps = ToolCallingAgent().process_tool_calls(SimpleNamespace(tool_calls=calls))
            return steps if stream else list(steps)

    class ToolCallingAgent:
        def process_tool_calls(self, chat_message: Any) -> Generator[object]:
            for call in chat_message.tool_calls:
                yield self.execute_tool_call(call.function.name, call.function.arguments)

        def execute_tool_call(self, tool_name: str, arguments: dict[str, str]) -> str:
            if tool_name == "bad":
                raise RuntimeError("the agent's own") from ValueError("no such city")
            return f"{arguments['city']}: 7 degrees"

    def call(identity: str, name: str, city: str) -> Any:
        return SimpleNamespace(id=identity, function=SimpleNamespace(name=name, arguments={"city": city}))

    smolagents.trace(module("smolagents.agents", MultiStepAgent=MultiStepAgent, ToolCallingAgent=ToolCallingAgent))
    agent = MultiStepAgent()
    streamed = agent.run([call("call_1", "good", "Oslo"), call("call_2", "good", "Paris")], stream=True)
    assert [(answer, trace.get_current_span() is trace.INVALID_SPAN) for answer in streamed] == [
        ("Oslo: 7 degrees", True),
        ("Paris: 7 degrees", True),
    ]
    with pytest.raises(RuntimeError):
        agent.run([call("call_3", "bad", "Atlantis")])
    got = recorded(exporter)
    assert [got[f"call_{number}"].result for number in (1, 2)] == ["Oslo: 7 degrees", "Paris: 7 degrees"]
    assert got["call_3"].error_type == "ValueError"
    assert {span.parent for span in got.values() if span.call_id} == {"invoke_agent reporter"}


def test_dspy(exporter: InMemorySpanExporter) -> None:
    class Tool:
        name = "weather"

        def __call__(self, **arguments: str) -> str:
            return f"{arguments['city']}: 7 degrees"

        async def acall(self, **arguments: str) -> str:
            if arguments["city"] == "Atlantis":
                raise ValueError("no such city")
            return self(**arguments)

    class Module:
        def __init__(self, *parts: Any) -> None:
            self.parts = parts

        def __call__(self, **arguments: str) -> list[object]:
            return [part(**arguments) for part in self.parts]

        async def acall(self, **arguments: str) -> list[object]:
            return [await part.acall(**arguments) for part in self.parts]

    class Program(Module):
        """Its class names the run."""

    dspy.trace_programs(module("dspy.primitives.module", Module=Module))
    dspy.trace_tools(module("dspy.adapters.types.tool", Tool=Tool))
    program = Program(Module(Tool()))
    assert program(city="Oslo") == [["Oslo: 7 degrees"]]
    assert [(span.name, span.parent is None) for span in exporter.get_finished_spans()] == [
        ("execute_tool weather", False),
        ("invoke_agent Program", True),
    ]
    with pytest.raises(ValueError, match="no such city"):
        asyncio.run(program.acall(city="Atlantis"))
    assert recorded(exporter)["execute_tool weather"].error_type == "ValueError"


def test_google_adk(exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> None:
    class PluginManager:
        async def run_on_tool_error_callback(self, *, error: Exception) -> str:
            return f"try again: {error}"

    google_adk.trace_tool_errors(module("google.adk.plugins.plugin_manager", PluginManager=PluginManager))
    with trace.get_tracer("gcp.vertex.agent").start_as_current_span("execute_tool f") as span:
        answer = PluginManager().run_on_tool_error_callback(error=ValueError("no such city"))
        assert asyncio.run(answer) == "try again: no such city"
        span.set_attribute("gen_ai.tool.call.id", "call_1")  # when the tool is done, as ADK does
    assert recorded(exporter)["call_1"].error_type == "ValueError"
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "http")
    monkeypatch.setenv(CONTENT_ENV, "")
    monkeypatch.delenv(CONTENT_ENV)
    google_adk.switch_on(module("google.adk"))
    assert (os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"], os.environ[CONTENT_ENV]) == ("http", "SPAN_ONLY")


@pytest.mark.parametrize(
    ("setting", "content", "expected"),
    [(None, "", "global"), ("false", "", None), ("dedicated", "", "dedicated"), (None, "false", None)],
)
def test_the_mistral_sdk_is_switched_on_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, setting: str | None, content: str, expected: str | None
) -> None:
    def resolve() -> str | None:
        return None if setting == "false" else setting

    monkeypatch.setenv(CONTENT_ENV, content)
    monkeypatch.setenv("MISTRAL_SDK_TELEMETRY", setting or "")
    telemetry: Any = module("telemetry", _resolve_mistral_telemetry_env=resolve)
    mistralai.switch_on(telemetry)
    assert telemetry._resolve_mistral_telemetry_env() == expected


def test_a_request_that_mistral_refuses_has_failed(exporter: InMemorySpanExporter) -> None:
    def get(*, span: Any, response: Any) -> str:
        span.end()
        return str(response.status_code)

    tracing: Any = module("tracing", get_response_and_error=get)
    mistralai.trace_errors(tracing)
    span = trace.get_tracer("test").start_span("chat")
    assert tracing.get_response_and_error(span=span, response=SimpleNamespace(status_code=400)) == "400"
    assert recorded(exporter)["chat"].error_type == "400"


def test_pydantic_ai_is_switched_on_by_its_own_switch(exporter: InMemorySpanExporter) -> None:
    del exporter
    switched: list[bool] = []
    agent = SimpleNamespace(instrument_all=lambda: switched.append(True))
    pydantic_ai.switch_on(module("pydantic_ai.agent", Agent=agent))
    assert switched == [True]


def test_without_content_a_span_has_neither_arguments_nor_result(
    exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONTENT_ENV, "false")
    with spans.tool_span("f", call_id="call_1", arguments={"city": "Oslo"}) as span:
        span.set_result("7 degrees")
    assert recorded(exporter)["call_1"] == Recorded("execute_tool f", "call_1", "", "", "", "")


def test_what_cannot_be_recorded_changes_nothing(exporter: InMemorySpanExporter, told: list[str]) -> None:
    class Unprintable:
        def __str__(self) -> str:
            raise OSError("no text")

    with spans.tool_span("f", call_id="call_1", arguments=Unprintable()) as span:
        span.set_result({"value": Unprintable()})
    assert recorded(exporter)["call_1"].error_type == ""
    assert len(told) == 1


def test_what_cannot_be_read_of_a_call_costs_only_its_values(exporter: InMemorySpanExporter, told: list[str]) -> None:
    class Tool:
        @property
        def name(self) -> str:
            raise OSError("no name")

        def __call__(self, city: str) -> str:
            return f"{city}: 7 degrees"

        acall = __call__

    dspy.trace_tools(module("dspy.adapters.types.tool", Tool=Tool))
    assert Tool()(city="Oslo") == "Oslo: 7 degrees"
    assert recorded(exporter)["execute_tool "].result == "Oslo: 7 degrees"
    (line,) = told
    assert "a tool call was not read: OSError: no name" in line


def test_a_framework_is_instrumented_when_it_is_imported_unless_it_is_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    for name in ("on", "off", "changed"):
        (tmp_path / f"fake_framework_{name}.py").write_text("def _execute_call(): ...\n" if name != "changed" else "")
    table = {name: {f"fake_framework_{name}": "trace_tools"} for name in ("on", "off", "changed")}
    monkeypatch.setattr(frameworks, "FRAMEWORKS", table)
    monkeypatch.setattr(frameworks, "import_module", {f"{frameworks.__name__}.{name}": ag2 for name in table}.get)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    watch_frameworks({"off"})
    loaded = {name: __import__(f"fake_framework_{name}") for name in table}
    is_wrapped = {name: hasattr(getattr(each, "_execute_call", None), "__wrapped__") for name, each in loaded.items()}
    assert is_wrapped == {"on": True, "off": False, "changed": False}
    (line,) = told
    assert "changed was not instrumented" in line
    for name in table:
        sys.modules.pop(f"fake_framework_{name}")


@pytest.mark.parametrize(("name", "functions"), frameworks.FRAMEWORKS.items())
def test_every_function_of_the_table_exists(name: str, functions: dict[str, str]) -> None:
    instrumentor = __import__(f"{frameworks.__name__}.{name}", fromlist=["*"])
    for function in functions.values():
        assert callable(getattr(instrumentor, function))
