"""Attributes in columns: what is read of a row does not depend on the rows beside it."""

import json
from itertools import combinations, islice, product
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from spanloop.converters import frames
from spanloop.converters.dialects import DIALECTS, Dialect, IndexedList, lists_of
from spanloop.converters.dialects.condition import PREFIX
from spanloop.converters.reading import canonical_columns as canonical
from spanloop.converters.reading.attributes import Attributes
from spanloop.messages import MessageLog, chain

PATHS = ".role .content .finish_reason .tool_calls.0.name .tool_calls.0.arguments .tool_call_id .0 .parameters .name ."
FLATTENED = ".message.role .message.content .message.tool_calls.0.tool_call.function.name .message.tool_call_id"
LISTS = "gen_ai.prompt gen_ai.completion llm.prompts llm.completions llm.request.functions llm.input_messages"
NUMBERED = st.builds(
    "{}.{}{}".format,
    st.sampled_from(LISTS.split()),
    st.sampled_from(["0", "1", "2", "10", "00", "x"]),
    st.sampled_from(["", *PATHS.split(), *FLATTENED.split()]),
)
OTHER = st.sampled_from(
    [
        "gen_ai.request.model",
        "openinference.span.kind",
        "input.value",
        "gen_ai.operation.name",
        "gen_ai.prompt",
        "gen_ai.tool.name",
        "llm.request.type",
        "events",
        "agent_name",
        "traceloop.span.kind",
        "gen_ai.response.id",
        "traceloop.entity.name",
        "gen_ai.request.type",
        "gen_ai.agent.name",
        "session.id",
        "gen_ai.output.messages",
        "gen_ai.usage.completion_tokens",
    ]
)
JSON_TEXTS = (
    '["a"]',
    '{"a": 1}',
    '[{"type": "text", "text": "x"}]',
    '[{"type": "tool_result", "tool_use_id": "c", "content": "r"}]',
    '["\\ud800"]',
    "LLM",
    '{"messages": [{"role": "user", "content": "hi"}]}',
)
VALUE = st.sampled_from(
    ["", *["user", "assistant", "tool", "thinking", "hello", "stop", "chat", "execute_tool"], *JSON_TEXTS]
)
SPAN = st.lists(st.tuples(NUMBERED | OTHER, st.none() | VALUE), max_size=8)


def spans(attributes: list[list[tuple[str, str | None]]]) -> pl.DataFrame:
    rows = [
        {
            "TraceId": f"{number:032x}",
            "SpanId": f"{number:016x}",
            "SpanName": "call",
            "SpanAttributes": [{"key": key, "value": value} for key, value in items],
        }
        for number, items in enumerate(attributes)
    ]
    return pl.DataFrame(rows, schema=frames.SPANS)


def one_by_one(frame: pl.DataFrame) -> pl.DataFrame:
    return pl.concat(canonical.canonical_columns(frame[number]) for number in range(frame.height))


@settings(max_examples=30, deadline=None)
@given(st.lists(SPAN, min_size=1, max_size=6))
def test_a_row_is_read_the_same_whatever_stands_beside_it(attributes: list[list[tuple[str, str | None]]]) -> None:
    frame = spans(attributes)
    assert_frame_equal(canonical.canonical_columns(frame), one_by_one(frame))


def test_a_history_that_grows_is_a_text_that_grows_at_its_end() -> None:
    said = [("user", 'say "hi"'), ("assistant", "hi"), ("user", "again\n"), ("assistant", "hi")]
    frame = spans(
        [
            [
                ("gen_ai.request.model", "tiny"),
                *(
                    item
                    for number, (role, text) in enumerate(said[: 1 + 2 * turn])
                    for item in ((f"gen_ai.prompt.{number}.role", role), (f"gen_ai.prompt.{number}.content", text))
                ),
            ]
            for turn in range(2)
        ]
    )
    first, second = canonical.canonical_columns(frame)["input_messages"].to_list()
    assert [message["parts"][0]["content"] for message in json.loads(second)] == [text for _, text in said[:3]]
    assert second.startswith(first.removesuffix("]"))


INDEXED = IndexedList(("messages", "older"), dict)


@pytest.mark.parametrize(
    ("attributes", "entries"),
    [
        ([("messages.0.role", "user"), ("messages.1.role", "tool")], [{"role": "user"}, {"role": "tool"}]),
        ([("messages.10.a", "2"), ("messages.9.a", "1")], [{"a": "1"}, {"a": "2"}]),
        ([("messages.0.calls.1.id", "b"), ("messages.0.calls.0.id", "a")], [{"calls": [{"id": "a"}, {"id": "b"}]}]),
        ([("messages.0.a", "1"), ("messages.0.a", "2")], [{"a": "2"}]),
        ([("messages.0.a", None)], [{"a": ""}]),
        ([("messages.0", "text"), ("messages.x.a", "1"), ("other.0.a", "1")], []),
        ([("messages.0.a.b", "1"), ("messages.0.a", "2")], [{"a": {"b": "1", "": "2"}}]),
        ([("messages.0.a", "1"), ("older.0.a", "2")], [{"a": "1"}]),
        ([("older.0.a", "2")], [{"a": "2"}]),
    ],
)
def test_entries_of_indexed_attributes(attributes: list[tuple[str, str | None]], entries: list[object]) -> None:
    frame = spans([[("messages.0.b", "x")], attributes, [("older.0.b", "y")]])
    found = lists_of(Attributes(frame["SpanAttributes"]), np.array([True] * 3), {"list": INDEXED}).by_name.get("list")
    assert found is not None
    assert found.of(1) == entries


def test_gaps_in_indexed_attributes_are_known() -> None:
    frame = spans([[("messages.0.a", "x"), ("messages.2.a", "x")], [("messages.0.a", "x")], [("messages.7.a", "x")]])
    found = lists_of(Attributes(frame["SpanAttributes"]), np.array([True] * 3), {"list": INDEXED}).by_name.get("list")
    assert found is not None
    assert found.is_gapless.tolist() == [False, True, False]
    assert len(set(map(id, found.entries))) == 1, "a distinct entry is read once"


def test_attributes_keep_their_rows_and_their_order() -> None:
    column = pl.Series(
        [
            [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}, {"key": "a", "value": "3"}],
            None,
            [],
            [{"key": "b"}],
        ],
        dtype=frames.STRING_ITEMS,
    )
    found = Attributes(column)
    assert found.column("a").to_list() == ["3", None, None, None]
    assert found.column("b").to_list() == ["2", None, None, None]
    assert found.column("c").to_list() == [None] * 4
    texts = list(found.texts(pl.Series([0, 2, 3]).to_numpy()))
    assert texts == [{"a": "3", "b": "2"}, {}, {"b": ""}]
    without = list(found.texts(pl.Series([0, 3]).to_numpy(), np.array([key == "b" for key in found.keys])))
    assert without == [{"a": "3"}, {}]
    assert "a" in found
    assert "c" not in found


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_absent_attributes_leave_a_condition_as_it_is(dialect: Dialect) -> None:
    """A dialect's condition is reduced to what the attributes of a batch can decide."""
    keys = sorted(key for key in dialect.condition.roots if key.startswith(PREFIX))
    named = [(name, scope) for name in NAMES for scope in ("", "agentscope")]
    for present in [*combinations(keys, 1), *combinations(keys, 2), tuple(keys)]:
        rows = [(*name, *values) for name in named for values in islice(product(VALUES, repeat=len(present)), 20)]
        frame = spans([[]] * len(rows)).with_columns(
            *(pl.lit(None, dtype=pl.String).alias(key) for key in keys if key not in present),
            *(
                pl.Series(column, [row[number] for row in rows], dtype=pl.String)
                for number, column in enumerate(("SpanName", "ScopeName", *present))
            ),
        )
        reduced = dialect.condition.reduced({*frames.SPANS, *present})
        expressions = pl.lit(value=True) & dialect.matches, pl.lit(value=True) & reduced
        whole, less = (
            frame.select("SpanId", one.fill_null(value=False).alias("is_matched"))["is_matched"] for one in expressions
        )
        assert whole.to_list() == less.to_list()


NAMES = ("call", "call_llm", "claude_code.llm", "autogen process", "raw_gen_ai_request", "execute_tool x")
VALUES = (None, "", "chat", "llm", "LLM", "tool", "[]", "{")


TEXT = st.text(max_size=4) | st.sampled_from(["[REDACTED]", "\x7f\x00\x1f", '\\ " \b\f\n\r\t/', "\u2028", "é"])
SCALAR = TEXT | st.integers() | st.booleans() | st.none() | st.sampled_from([1.0, 1e16, 2**70])
PART = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "content": TEXT}),
    st.fixed_dictionaries(
        {"type": st.just("tool_call"), "id": TEXT, "name": TEXT, "arguments": st.dictionaries(TEXT, SCALAR, max_size=3)}
    ),
    st.fixed_dictionaries({"type": st.just("tool_call_response"), "id": TEXT, "response": TEXT}),
    st.dictionaries(TEXT, TEXT, max_size=2),
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool", "ai"]), "parts": st.lists(PART, max_size=3)},
    optional={"finish_reason": TEXT},
)


@settings(max_examples=80, deadline=None)
@given(st.lists(MESSAGE, max_size=6), st.booleans())
def test_a_history_is_read_as_its_messages_are(said: list[dict[str, Any]], is_ascii: bool) -> None:  # noqa: FBT001
    expected = tuple(MessageLog().of_objects([item])[0] for item in said)
    log, pairs = MessageLog(), set[tuple[int, bytes]]()
    for count in range(1, len(said) + 1):
        text = json.dumps(said[:count], ensure_ascii=is_ascii)
        assert log.read(text) == expected[:count]
        found = log.read_history(text, "trace")
        assert found is log.history(log.of_objects(said[:count]))
        assert found is log.history_of_objects(said[:count], "trace")
        assert found.messages == expected[:count]
        assert found.facts == MessageLog().history(found.messages).facts
        pairs.add((found.number, chain(expected[:count])[-1]))
    # Histories have the same number exactly where the digests of their messages are the same.
    assert len({number for number, _ in pairs}) == len({digest for _, digest in pairs}) == len(pairs)
