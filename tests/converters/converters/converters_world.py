"""Made-up agents whose spans and captures are known to the token, as rows that the converters read.

Ids are counted, times are given: the same calls make the same rows.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from spanloop.converters import Converted, Options, frames
from spanloop.converters import convert as convert_to_ranges
from spanloop.converters.tokens.message_numbers import with_state_texts

START = datetime(2026, 11, 20, 9, tzinfo=UTC)
SECOND_NS = 1_000_000_000
TOOLS = [
    {
        "type": "function",
        "name": "search",
        "description": "Look something up.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
            "required": ["query"],
        },
    }
]

Message = dict[str, Any]


def text(role: str, content: str) -> Message:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def asks(identity: str, name: str = "search", arguments: Any = None, content: str = "") -> Message:
    parts: list[Message] = [{"type": "text", "content": content}] if content else []
    arguments = {"query": identity} if arguments is None else arguments
    return {
        "role": "assistant",
        "parts": [*parts, {"type": "tool_call", "id": identity, "name": name, "arguments": arguments}],
    }


def answers(identity: str, content: str) -> Message:
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": identity, "response": content}]}


OPENING = (text("system", "You are helpful."), text("user", "What is the weather in Paris?"))


@dataclass
class World:
    """Collects rows; every method returns the id of what it made."""

    spans: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    scores: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    generations: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    clock_s: float = 0.0

    def span(
        self,
        name: str,
        attributes: Mapping[str, Any],
        *,
        trace: str,
        parent: str = "",
        span_id: str = "",
        start_s: float | None = None,
        duration_s: float = 0.5,
        error: str = "",
        exception: tuple[str, str] | None = None,
        ingested_s: float | None = None,
        dropped: int = 0,
        service: str = "app",
        scope: str = "",
        links: Sequence[tuple[str, str]] = (),
    ) -> str:
        own = span_id or f"{len(self.spans) + 1:016x}"
        begin = self.clock_s if start_s is None else start_s
        self.clock_s = max(self.clock_s, begin + duration_s + 0.1)
        values = {"exception.type": exception[0], "exception.message": exception[1]} if exception else {}
        self.spans.append(
            {
                "Timestamp": _ns(begin),
                "TraceId": trace,
                "SpanId": own,
                "ParentSpanId": parent,
                "SpanName": name,
                "ServiceName": service,
                "ScopeName": scope,
                "SpanAttributes": _items(attributes),
                "Duration": int(duration_s * SECOND_NS),
                "StatusCode": "Error" if error or exception else "Unset",
                "StatusMessage": error,
                "Events.Name": ["exception"] if exception else [],
                "Events.Attributes": [_items(values)] if exception else [],
                "Links.TraceId": [linked[0] for linked in links],
                "Links.SpanId": [linked[1] for linked in links],
                "DroppedAttributesCount": dropped,
                "IngestedAt": _us(begin + 1 if ingested_s is None else ingested_s),
            }
        )
        return own

    def call(
        self,
        seen: Sequence[Message],
        said: Message | None,
        *,
        trace: str,
        finish: str = "",
        response_id: str = "",
        model: str = "tiny@v1",
        tools: Sequence[Message] = TOOLS,
        attributes: Mapping[str, Any] | None = None,
        **where: Any,
    ) -> str:
        """A model call as the OpenLLMetry instrumentor writes it."""
        has_call = said is not None and any(part["type"] == "tool_call" for part in said["parts"])
        reason = finish or ("tool_call" if has_call else "stop")
        values: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": model,
            "gen_ai.is_streaming": False,
            "gen_ai.input.messages": json.dumps(list(seen)),
            "gen_ai.tool.definitions": json.dumps(list(tools)),
        }
        if said is not None:
            values |= {
                "gen_ai.response.model": model,
                "gen_ai.response.id": response_id or f"chatcmpl-{len(self.spans) + 1}",
                "gen_ai.response.finish_reasons": [reason],
                "gen_ai.output.messages": json.dumps([{**said, "finish_reason": reason}]),
            }
        return self.span("openai.chat", values | dict(attributes or {}), trace=trace, **where)

    def tool(self, identity: str, result: str, *, trace: str, name: str = "search", **where: Any) -> str:
        values = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": identity,
            "gen_ai.tool.call.result": result,
        }
        return self.span(f"execute_tool {name}", values, trace=trace, **where)

    def score(self, value: float, *, name: str = "reward", **ids: Any) -> str:
        own = ids.pop("score_id", f"score-{len(self.scores) + 1}")
        at = ids.pop("at_s", self.clock_s)
        row = {
            "score_id": own,
            "name": name,
            "value": value,
            "label": "",
            "trace_id": "",
            "span_id": "",
            "response_id": "",
            "session_id": "",
            "episode_key": "",
            "scored_at": _ns(at),
            "ingested_at": _us(at + 1),
            "is_deleted": 0,
        }
        self.scores.append(row | ids)
        return str(own)

    def capture(
        self,
        prompt: Sequence[int],
        response: Sequence[int],
        *,
        response_id: str = "",
        trace: str = "",
        parent: str = "",
        logprobs: Sequence[float] | None = None,
        is_complete: bool = True,
        version: str = "tiny@v1",
        tokenizer: str = "",
        generation_id: str = "",
        choice: int = 0,
        finish: str = "stop",
    ) -> None:
        self.generations.append(
            {
                "generation_id": generation_id or f"{response_id or len(self.generations)}/{choice}",
                "response_id": response_id,
                "choice_index": choice,
                "trace_id": trace,
                "parent_span_id": parent,
                "policy_version": version,
                "tokenizer": tokenizer,
                "prompt_token_ids": list(prompt),
                "response_token_ids": list(response),
                "logprobs": [-0.5 - token / 1000 for token in response] if logprobs is None else list(logprobs),
                "finish_reason": finish,
                "is_complete": is_complete,
                "sampling": [{"key": "temperature", "value": "1.0"}],
                "ingested_at": _us(self.clock_s),
            }
        )

    def span_frame(self) -> pl.DataFrame:
        has_links = any(row["Links.TraceId"] for row in self.spans)
        return _frame(self.spans, pl.Schema({**frames.SPANS, **frames.LINKS}) if has_links else frames.SPANS)

    def score_frame(self) -> pl.DataFrame:
        return _frame(self.scores, frames.SCORES)

    def generation_frame(self) -> pl.DataFrame:
        return _frame(self.generations, frames.GENERATIONS)

    def convert(self, options: Options | None = None) -> Converted:
        return convert(
            self.span_frame(),
            scores=self.score_frame(),
            generations=self.generation_frame(),
            options=options or Options(),
        )


def convert(spans: pl.DataFrame, **given: Any) -> Converted:
    """As `spanloop.converters.convert`, with the texts of states."""
    converted = convert_to_ranges(spans, **given)
    return converted._replace(transitions=with_state_texts(converted.transitions, converted.messages))


TRANSITIONS = pl.Schema({**frames.TRANSITIONS, "state": pl.String(), "next_state": pl.String()})
"""With the texts of states, as the view shows them."""


def exported_transitions(converted: Converted) -> pl.DataFrame:
    """The rows of the query ``export_transitions``."""
    is_failure = pl.col("outcome") == "failure"
    decided_by = pl.when(is_failure).then("fault_owner").otherwise(pl.lit("")).alias("decided_by")
    faults = converted.failures.group_by("episode_id", "step").agg(
        fault_classes="error_class", fault_owners="fault_owner", fault_is_recovered="is_recovered"
    )
    columns = ("fault_classes", "fault_owners", "fault_is_recovered")
    return (
        converted.transitions.join(
            converted.episodes.select("episode_id", "outcome", decided_by), on="episode_id", maintain_order="left"
        )
        .join(faults, on=("episode_id", "step"), how="left", maintain_order="left")
        .with_columns(pl.col(columns).fill_null([]))
    )


def loop(world: World, name: str, *, steps: int = 3, opening: Sequence[Message] = OPENING, **common: Any) -> list[str]:
    """A tool-calling loop, every call a trace of its own unless ``trace`` is given; returns the span ids."""
    trace = common.pop("trace", "")
    seen = list(opening)
    found: list[str] = []
    for step in range(steps):
        identity = f"{name}-{step}"
        said = asks(identity) if step < steps - 1 else text("assistant", f"{name} is done.")
        found.append(world.call(seen, said, trace=trace or trace_id(f"{name}-{step}"), **common))
        seen += [said, answers(identity, f"result {step}")]
    return found


def trace_id(name: str) -> str:
    return f"{abs(hash_of(name)):032x}"


def hash_of(name: str) -> int:
    """The same number for the same name in every process."""
    return int.from_bytes(name.encode(), "big") % (1 << 120)


def _items(values: Mapping[str, Any]) -> list[dict[str, str]]:
    return [
        {"key": key, "value": value if isinstance(value, str) else json.dumps(value)} for key, value in values.items()
    ]


def _ns(seconds: float) -> int:
    return _us(seconds) * 1_000


def _us(seconds: float) -> int:
    return int((START + timedelta(seconds=seconds) - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))


def _frame(rows: Sequence[Mapping[str, Any]], schema: pl.Schema) -> pl.DataFrame:
    times = {name: dtype for name, dtype in schema.items() if dtype in {frames.TIME_NS, frames.TIME_US}}
    raw = {name: pl.Int64() if name in times else dtype for name, dtype in schema.items()}
    return pl.DataFrame([dict(row) for row in rows], schema=raw).with_columns(
        pl.col(name).cast(dtype) for name, dtype in times.items()
    )


def stored_frame(spans: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """``spans`` with every column of the table ``otel_traces``, as a block that the store takes."""
    times = pl.col("Events.Name").list.eval(pl.lit(0, dtype=pl.Int64)).cast(pl.List(frames.TIME_NS))
    timed = spans.with_columns(times.alias("Events.Timestamp"))
    if "Links.TraceId" in timed.columns:
        counts = timed["Links.TraceId"].list.len().to_list()
        empty: dict[str, Any] = {"Links.TraceState": "", "Links.Attributes": []}
        timed = timed.with_columns(
            pl.Series(name, [[value] * count for count in counts], dtype=schema[name]) for name, value in empty.items()
        )
    return timed.select(
        pl.col(name) if name in timed.columns else pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in schema.items()
    )
