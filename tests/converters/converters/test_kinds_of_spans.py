"""What each kind of span of a vendor's tracer is read as: all of them in one frame, each told by its own marks."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl
import pytest

from spanloop.converters.reading.canonical_columns import canonical_columns

from .converters_world import World, trace_id

Json = dict[str, Any]
QUESTION = {"role": "user", "parts": [{"type": "text", "content": "q"}]}
ANSWER = {"role": "assistant", "parts": [{"type": "text", "content": "a"}]}
ASKED: Json = {"type": "tool_call", "id": "c", "name": "f", "arguments": {"x": 1}}
CALL = {"role": "assistant", "parts": [ASKED]}
UUID = "0b6c1e6e-7d6b-4a37-9e59-8f0a4a1d2c3b"


class Told(NamedTuple):
    """A span, and the columns that it is read as; an empty text is an empty column."""

    attributes: Json
    expected: Mapping[str, Any]
    name: str = "span"
    scope: str = ""
    events: Sequence[tuple[str, Json]] = ()


def tool(arguments: str, result: str, name: str = "f", **more: str) -> Json:
    return {"kind": "tool", "tool_name": name, "tool_arguments": arguments, "tool_result": result, **more}


def agentscope(operation: str, **attributes: Any) -> Json:
    return {"gen_ai.operation.name": operation, **{f"gen_ai.{key}": value for key, value in attributes.items()}}


FAILED = "ToolResponse(content=[TextBlock(text='no')], state=<ToolResultState.DENIED: 'denied'>)"
AGENTSCOPE: dict[str, Told] = {
    "agentscope agent": Told(agentscope("invoke_agent"), {"kind": "agent"}, scope="agentscope"),
    "agentscope tool": Told(
        agentscope("execute_tool", **{"tool.name": "f", "tool.call.result": "[\"TextBlock(text='r')\"]"}),
        {"kind": "tool", "tool_name": "f", "tool_result": "r", "error_type": ""},
        scope="agentscope",
    ),
    "agentscope tool that was refused": Told(
        agentscope("execute_tool", **{"tool.name": "f", "tool.call.result": FAILED}),
        {"kind": "tool", "error_type": "ToolResultState.DENIED", "tool_result": "no"},
        scope="agentscope",
    ),
    "agentscope call that was stopped": Told(
        agentscope("chat", **{"response.finish_reasons": '["interrupted"]', "output.messages": json.dumps([ANSWER])}),
        {"kind": "llm", "finish_reasons": "interrupted", "error_type": "interrupted"},
        scope="agentscope",
    ),
    "agentscope call that asks": Told(
        agentscope("chat", **{"response.finish_reasons": "stop", "output.messages": json.dumps([CALL])}),
        {"kind": "llm", "finish_reasons": "tool_call", "error_type": ""},
        scope="agentscope",
    ),
    "agentscope ids that it does not know": Told(
        agentscope("invoke_agent", **{"conversation.id": "[no_session_id]", "agent.name": "unknown_agent"}),
        {"conversation_id": "", "agent_name": ""},
        scope="agentscope",
    ),
    "agentscope 1.0.0 tool": Told(
        {
            "span.kind": '"TOOL"',
            "metadata": json.dumps({"name": "f", "id": "c", "input": {"x": 1}}),
            "output": json.dumps("ToolResponse(content=[TextBlock(type='text', text='r')])"),
        },
        tool('{"x":1}', "r", tool_call_id="c"),
        scope="agentscope.tracing",
    ),
    "agentscope 1.0.0 agent": Told(
        {"span.kind": '"AGENT"', "metadata": '{"name": "Friday"}'},
        {"kind": "agent", "agent_name": "Friday"},
        scope="agentscope.tracing",
    ),
    "agentscope 1.0.0 formatter": Told({"span.kind": '"FORMATTER"'}, {"kind": "other"}, scope="agentscope.tracing"),
}

CHAT_START = {"messages": json.dumps([{"role": "user", "content": "q"}]), "model_dict.model_name": "m"}
LLAMA_INDEX: dict[str, Told] = {
    "llama_index call": Told(
        {"llamaindex.run_id": "r"},
        {"kind": "llm", "request_model": "m", "input_messages": [QUESTION], "output_messages": [ANSWER]},
        events=[
            ("LLMChatStartEvent", CHAT_START),
            ("LLMChatEndEvent", {"response.message": json.dumps({"role": "assistant", "content": "a"})}),
        ],
    ),
    "llama_index completion": Told(
        {"llamaindex.run_id": "r"},
        {"kind": "llm", "max_tokens": "9", "input_messages": [QUESTION], "output_messages": [ANSWER]},
        events=[
            ("LLMCompletionStartEvent", {"prompt": "q", "additional_kwargs.max_tokens": "9"}),
            ("LLMCompletionEndEvent", {"response.text": "a"}),
        ],
    ),
    "llama_index stream": Told(
        {"llamaindex.run_id": "r"},
        {"kind": "llm", "input_messages": [QUESTION], "output_messages": ""},
        events=[("LLMChatStartEvent", CHAT_START)],
    ),
    "llama_index calls beside the message": Told(
        {"llamaindex.run_id": "r"},
        {"kind": "llm", "output_messages": [CALL]},
        events=[
            ("LLMChatStartEvent", CHAT_START),
            (
                "LLMChatEndEvent",
                {
                    "response.message.role": "assistant",
                    "response.message.additional_kwargs.tool_calls": json.dumps(
                        [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]
                    ),
                },
            ),
        ],
    ),
    "llama_index tool": Told(
        {
            "llamaindex.run_id": "r",
            "llamaindex.step.input_event": "ToolCall",
            "llamaindex.step.input_summary": "ToolCall(tool_name='f', tool_kwargs={'x': 1}, tool_id='c')",
        },
        tool('{"x":1}', "", tool_call_id="c"),
        events=[("step.output", {"output": "ToolCallResult(…)"})],
    ),
    "llama_index agent": Told(
        {"llamaindex.run_id": "r", "llamaindex.step.input_summary": "AgentInput(current_agent_name='Friday')"},
        {"kind": "agent", "agent_name": "Friday"},
        name="FunctionAgent.run_agent_step",
    ),
    "llama_index step within an agent": Told(
        {"llamaindex.run_id": "r", "llamaindex.step.input_summary": "AgentOutput(current_agent_name='Friday')"},
        {"kind": "other", "agent_name": "Friday"},
        name="FunctionAgent.parse_agent_output",
    ),
}


def monocle(kind: str, **attributes: str) -> Json:
    return {"monocle_apptrace.version": "0.6", "span.type": kind, **attributes}


MONOCLE_CALL = [{"tool_id": "c", "tool_name": "f", "tool_arguments": {"x": 1}}]
MONOCLE: dict[str, Told] = {
    "monocle tool": Told(
        monocle("agentic.mcp.invocation", **{"entity.1.name": "f", "scope.agentic.session": "s"}),
        tool("{}", "r", conversation_id="s"),
        events=[("data.input", {"input": "{}"}), ("data.output", {"response": "r"})],
    ),
    "monocle agent": Told(
        monocle("agentic.invocation", **{"entity.1.name": "Friday"}), {"kind": "agent", "agent_name": "Friday"}
    ),
    "monocle turn": Told(
        monocle("agentic.request", **{"entity.1.name": "Friday"}), {"kind": "other", "agent_name": ""}
    ),
    "monocle call": Told(
        monocle("inference.framework", **{"entity.2.name": "m"}),
        {
            "kind": "llm",
            "request_model": "m",
            "finish_reasons": "stop",
            "input_tokens": "3",
            "output_tokens": "2",
            "input_messages": [QUESTION],
            "output_messages": [ANSWER],
        },
        events=[
            ("data.input", {"input": json.dumps([json.dumps({"user": "q"})])}),
            ("data.output", {"response": json.dumps({"assistant": "a"})}),
            ("metadata", {"finish_reason": "stop", "prompt_tokens": "3", "completion_tokens": "2"}),
        ],
    ),
    "monocle call that asks": Told(
        monocle("inference"),
        {"kind": "llm", "output_messages": [CALL]},
        events=[
            ("data.output", {"response": json.dumps({"assistant": MONOCLE_CALL})}),
            ("metadata", {"finish_reason": "tool_calls"}),
        ],
    ),
    "monocle stream that lost its arguments": Told(
        monocle("inference"),
        {"kind": "llm", "finish_reasons": "tool_calls", "output_messages": ""},
        events=[
            ("data.output", {"response": json.dumps({"assistant": [{**MONOCLE_CALL[0], "tool_arguments": ""}]})}),
            ("metadata", {"finish_reason": "tool_calls"}),
        ],
    ),
    "monocle call whose answer is an error": Told(
        monocle("inference"),
        {"kind": "llm", "output_messages": ""},
        events=[("data.output", {"response": json.dumps({"assistant": "overloaded"}), "error_code": "529"})],
    ),
    "monocle span that only begins like a call": Told(monocle("inferences"), {"kind": "other"}),
}


def mastra(kind: str, **attributes: Any) -> Json:
    return {"mastra.span.type": kind, "mastra.metadata.runId": "run", **attributes}


MASTRA: dict[str, Told] = {
    "mastra run": Told(mastra("model_generation", **{"gen_ai.operation.name": "chat"}), {"kind": "other"}),
    "mastra step": Told(
        mastra(
            "model_step",
            **{
                "mastra.model_step.input": {
                    "messages": [
                        {"role": "user", "content": "q"},
                        {"role": "assistant", "content": "Look. [tool: f]"},
                        {"role": "tool", "content": "[tool-result: f]"},
                        {"role": "tool", "content": "[tool-result: f] and more"},
                    ]
                },
                "mastra.model_step.output": {
                    "text": "a",
                    "toolCalls": [{"type": "tool-call", "toolCallId": "c", "toolName": "f", "args": {"x": 1}}],
                },
                "mastra.metadata.modelMetadata": {"modelId": "m"},
                "mastra.metadata.body": {"id": "resp", "model": "m-1"},
            },
        ),
        {
            "kind": "llm",
            "request_model": "m",
            "response_model": "m-1",
            "response_id": "resp",
            "input_messages": [
                QUESTION,
                {
                    "role": "assistant",
                    "parts": [{"type": "text", "content": "Look."}, {"type": "tool_call", "name": "f"}],
                },
                {
                    "role": "tool",
                    "parts": [{"type": "tool_call_response", "id": "", "response": "[tool-result: f] and more"}],
                },
            ],
            "output_messages": [{"role": "assistant", "parts": [*ANSWER["parts"], ASKED]}],
        },
    ),
    "mastra call that failed": Told(
        mastra("model_inference", **{"gen_ai.response.finish_reasons": '["error"]'}),
        {"kind": "llm", "finish_reasons": "", "error_type": "error"},
    ),
}

CLAUDE_CODE: dict[str, Told] = {
    "claude_code tool": Told(
        {
            "span.type": "tool",
            "tool_name": "Bash",
            "tool_use_id": "c",
            "tool_input": '[TOOL INPUT: Bash]\n{"x": 1}',
            "new_context": "[TOOL RESULT: Bash]\nr\ns",
        },
        tool('{"x": 1}', "r\ns", "Bash", tool_call_id="c"),
        name="claude_code.tool",
    ),
    "claude_code turn": Told({"span.type": "interaction"}, {"kind": "agent"}, name="claude_code.interaction"),
    "claude_code hook": Told({"span.type": "hook"}, {"kind": "other"}, name="claude_code.hook"),
    "claude_code request": Told(
        {"span.type": "llm_request", "response.model_output": "a", "stop_reason": "end_turn", "status_code": "529"},
        {"kind": "llm", "finish_reasons": "end_turn", "error_type": "529", "output_messages": [ANSWER]},
        name="claude_code.llm_request",
    ),
}

LAMINAR: dict[str, Told] = {
    "laminar tool": Told(
        {"lmnr.span.type": "TOOL", "lmnr.span.input": '{"x": 1}', "lmnr.span.output": json.dumps("r\n")},
        tool('{"x": 1}', "r\n"),
        name="f",
    ),
    "laminar tool with an object": Told(
        {"lmnr.span.type": "TOOL", "lmnr.span.output": '{"y": 2}'}, tool("", '{"y": 2}'), name="f"
    ),
    "laminar function": Told({"lmnr.span.type": "DEFAULT"}, {"kind": "other", "tool_name": ""}, name="f"),
    "autogen message": Told(
        {"messaging.destination": "x"},
        {"kind": "other", "conversation_id": UUID},
        name=f"autogen process group_topic_({UUID})-T",
    ),
    "autogen message of no team": Told(
        {"messaging.destination": "x"}, {"kind": "other", "conversation_id": ""}, name="autogen create agent"
    ),
    "neatlogs call": Told(
        {
            "neatlogs.span.kind": "llm",
            "neatlogs.llm.input_messages.0.role": "user",
            "neatlogs.llm.input_messages.0.content": "q",
            "neatlogs.llm.output_messages.0.role": "assistant",
            "neatlogs.llm.output_messages.0.content": "a",
            "neatlogs.llm.tool_calls.0.id": "c",
            "neatlogs.llm.tool_calls.0.name": "f",
            "neatlogs.llm.tool_calls.0.arguments": '{"x": 1}',
            "neatlogs.llm.tool_calls.1.choice_index": "1",
            "neatlogs.llm.tool_calls.1.name": "other",
            "neatlogs.llm.finish_reason": "tool_calls",
        },
        {
            "kind": "llm",
            "finish_reasons": "tool_calls",
            "input_messages": [QUESTION],
            "output_messages": [{"role": "assistant", "parts": [*ANSWER["parts"], {**ASKED, "arguments": '{"x": 1}'}]}],
        },
    ),
    "a server's own": Told({"gen_ai.latency.e2e": 0.5, "gen_ai.request.model": "m"}, {"kind": "other"}),
}


def decorated(marks: Mapping[str, tuple[str, str]]) -> dict[str, Told]:
    """A span for each kind that a library writes, in its own spelling, in capitals and in lower case."""
    return {
        f"{library} {told}": Told({key: told, **beside}, {"kind": kind}, name="f")
        for library, (key, kinds) in marks.items()
        for one in kinds.split()
        for told, kind in ((one.split("=")[0], one.split("=")[1]), (one.split("=")[0].upper(), one.split("=")[1]))
        for beside in [BESIDE.get(library, {})]
    }


MESSAGES = json.dumps([{"role": "user", "content": "q"}])
BESIDE: dict[str, Json] = {"honeyhive": {"honeyhive_inputs.messages": MESSAGES}}
DECORATED = decorated(
    {
        "trulens": ("ai.observability.span_type", "generation=llm tool=tool mcp=tool agent=agent"),
        "honeyhive": ("honeyhive_event_type", "model=llm tool=tool chain=other"),
        "agenta": ("ag.type.node", "chat=llm completion=llm llm=llm tool=tool agent=agent workflow=other"),
        "basalt": ("basalt.span.kind", "generation=llm tool=tool retrieval=other"),
    }
)

SPANS = AGENTSCOPE | LLAMA_INDEX | MONOCLE | MASTRA | CLAUDE_CODE | LAMINAR | DECORATED


@pytest.fixture(scope="module")
def columns() -> dict[str, Json]:
    """What each of ``SPANS`` is read as, by its name; all are in traces of their own."""
    world = World()
    for name, told in SPANS.items():
        world.span(told.name, told.attributes, trace=trace_id(name), scope=told.scope)
        items = [[{"key": key, "value": value} for key, value in attributes.items()] for _, attributes in told.events]
        world.spans[-1] |= {"Events.Name": [event for event, _ in told.events], "Events.Attributes": items}
    rows = canonical_columns(world.span_frame()).with_columns(pl.all().exclude(pl.Struct).fill_null(""))
    return dict(zip(SPANS, rows.iter_rows(named=True), strict=True))


@pytest.mark.parametrize("name", SPANS)
def test_a_span_is_read_by_its_own_marks(name: str, columns: dict[str, Json]) -> None:
    found, expected = columns[name], SPANS[name].expected
    read = {key: json.loads(found[key]) if isinstance(value, list) else found[key] for key, value in expected.items()}
    assert read == expected
