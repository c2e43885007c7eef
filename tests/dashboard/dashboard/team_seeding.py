"""Spans of a team of agents in sessions of several turns, and of a trace with very many spans."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from spanloop.pipeline.run import run as run_pipeline
from spanloop.store import Store

from .dashboard_seeding import insert

SESSION: Final = "session-blue-42"
QUESTIONS: Final = ("Which desks are in stock?", "And what does the oak one cost?", "Please write the offer.")
OFFER: Final = (
    "# Offer\n\n**Oak desk**, one piece:\n\n| item | price |\n|---|---|\n| oak desk | 129 € |\n\n- free delivery\n"
    "- [terms](https://example.com/terms)\n\n```python\nprint('thank you')\n```"
)
ANSWERS: Final = ("Two: an *oak* desk and a `steel` desk.", "It costs **129 €**.", OFFER)


def seed_team(store: Store, *, now: datetime | None = None, sessions: int = 1) -> None:
    """Store and convert the sessions of `insert_team`, and whatever else the store has."""
    insert_team(store, now=now, sessions=sessions)
    run_pipeline(store)


def insert_team(store: Store, *, now: datetime | None = None, sessions: int = 1) -> None:
    """Store sessions of three turns, in which a planner calls a researcher and a writer, and these call tools."""
    end = now or datetime.now(UTC)
    for number in range(sessions):
        session = SESSION if number == 0 else f"session-{number}"
        for turn in range(len(QUESTIONS)):
            at = end - timedelta(hours=2 * number + 1, minutes=-5 * turn)
            insert(store, "otel_traces", list(_turn(session, number, turn, at)))


def large_trace(spans: int, *, now: datetime | None = None) -> list[dict[str, Any]]:
    """Return the spans of one trace: an agent that makes a model call and a tool call, again and again."""
    start = (now or datetime.now(UTC)) - timedelta(hours=1)
    trace = "f" * 32
    rows = [_span(trace, 0, None, "invoke_agent crawler", start, (0, 0.01 * spans), {"gen_ai.agent.name": "crawler"})]
    while len(rows) < spans:
        number, offset_s = len(rows), 0.01 * len(rows)
        rows.append(
            _span(
                trace,
                number,
                0,
                f"round {number // 3}",
                start,
                (offset_s, 0.028),
                {"gen_ai.operation.name": "invoke_agent"},
            )
        )
        call = _model(
            "crawler", [_text("user", f"Page {number // 3}?")], _text("assistant", f"Page {number // 3} is read.")
        )
        rows.append(_span(trace, number + 1, number, "chat small", start, (offset_s, 0.015), call))
        failure = "TimeoutError: the page did not load" if number % 97 == 1 else ""
        tool = _tool("crawler", "fetch_page", {"page": number // 3}, {"bytes": 7 * number}) | (
            {"error.type": "TimeoutError"} if failure else {}
        )
        rows.append(
            _span(
                trace,
                number + 2,
                number,
                "execute_tool fetch_page",
                start,
                (offset_s + 0.015, 0.01),
                tool,
                error=failure,
            )
        )
    return rows[:spans]


def _turn(session: str, number: int, turn: int, at: datetime) -> Iterator[dict[str, Any]]:
    """Yield the trace of one turn; the prompt has the turns before."""
    trace = f"{number:04x}{turn:04x}".ljust(32, "c")
    shared = {"session.id": session}
    history = [_text("system", "You sell desks. Ask the others for facts.")]
    for past in range(turn):
        history += [_text("user", QUESTIONS[past]), _text("assistant", ANSWERS[past])]
    history.append(_text("user", QUESTIONS[turn]))
    helper, tool = ("writer", "render_offer") if turn == 2 else ("researcher", "search_stock")
    question = [_text("user", f"Help with: {QUESTIONS[turn]}")]
    ask = {
        "role": "assistant",
        "parts": [
            {"type": "tool_call", "id": f"ask-{turn}", "name": helper, "arguments": {"question": QUESTIONS[turn]}}
        ],
    }
    answered = {"role": "tool", "parts": [{"type": "tool_call_response", "id": f"ask-{turn}", "response": "Known."}]}
    look = {
        "role": "assistant",
        "parts": [
            {
                "type": "tool_call",
                "id": f"look-{turn}",
                "name": tool,
                "arguments": {"item": "desk", "limits": {"from": 1, "to": 12345678901234567890}},
            }
        ],
    }
    failure = "TimeoutError: the stock did not answer within 5 s" if turn == 1 else ""
    seen: dict[str, Any] = {
        "role": "tool",
        "parts": [
            {"type": "tool_call_response", "id": f"look-{turn}", "response": failure or {"found": ["oak", "steel"]}}
        ],
    }
    tool_attributes = _tool(
        helper, tool, {"item": "desk", "limits": {"from": 1, "to": 20}}, {"found": ["oak", "steel"]}
    ) | {"gen_ai.tool.call.id": f"look-{turn}"}
    if failure:
        tool_attributes["error.type"] = "TimeoutError"
        del tool_attributes["gen_ai.tool.call.result"]
    delegated = _tool("planner", helper, {"question": QUESTIONS[turn]}, "Known.") | {
        "gen_ai.tool.call.id": f"ask-{turn}"
    }
    plan: list[tuple[int | None, str, tuple[float, float], dict[str, str], str]] = [
        (
            None,
            "invoke_agent planner",
            (0, 9),
            {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"},
            "",
        ),
        (0, "chat large", (0.1, 1.2), _model("planner", history, ask), ""),
        (0, f"execute_tool {helper}", (1.4, 5), delegated, ""),
        (
            2,
            f"invoke_agent {helper}",
            (1.5, 4.8),
            {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": helper},
            "",
        ),
        (3, "chat small", (1.6, 0.9), _model(helper, question, look), ""),
        (3, f"execute_tool {tool}", (2.6, 2), tool_attributes, failure),
        (3, "chat small", (4.7, 1.1), _model(helper, [*question, look, seen], _text("assistant", "Known.")), ""),
        (
            0,
            "chat large",
            (6.5, 2.2),
            _model("planner", [*history, ask, answered], _text("assistant", ANSWERS[turn])),
            "",
        ),
    ]
    for index, (parent, name, when_s, attributes, error) in enumerate(plan):
        yield _span(trace, index, parent, name, at, when_s, attributes | shared, error=error)


def _text(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def _model(agent: str, messages: list[dict[str, Any]], answer: dict[str, Any]) -> dict[str, str]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.agent.name": agent,
        "gen_ai.request.model": "large" if agent == "planner" else "small",
        "gen_ai.request.temperature": "0.7",
        "gen_ai.usage.input_tokens": str(40 * len(messages)),
        "gen_ai.usage.output_tokens": "21",
        "gen_ai.input.messages": json.dumps(messages),
        "gen_ai.output.messages": json.dumps([answer | {"finish_reason": "stop"}]),
    }


def _tool(agent: str, name: str, arguments: object, result: object) -> dict[str, str]:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.agent.name": agent,
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.arguments": json.dumps(arguments),
        "gen_ai.tool.call.result": json.dumps(result),
    }


def _span(  # noqa: PLR0917 - one line of a plan
    trace: str,
    number: int,
    parent: int | None,
    name: str,
    start: datetime,
    when_s: tuple[float, float],
    attributes: dict[str, str],
    *,
    error: str = "",
) -> dict[str, Any]:
    offset_s, took_s = when_s
    return {
        "Timestamp": start + timedelta(seconds=offset_s),
        "TraceId": trace,
        "SpanId": f"{number + 1:06x}{trace[:8]}".rjust(16, "d"),
        "ParentSpanId": "" if parent is None else f"{parent + 1:06x}{trace[:8]}".rjust(16, "d"),
        "SpanName": name,
        "SpanKind": "Internal",
        "ServiceName": "desk-shop",
        "ResourceAttributes": {"service.name": "desk-shop"},
        "ScopeName": "opentelemetry.instrumentation.agents",
        "SpanAttributes": attributes,
        "Duration": int(took_s * 1e9),
        "StatusCode": "Error" if error else "Unset",
        "StatusMessage": error,
    }
