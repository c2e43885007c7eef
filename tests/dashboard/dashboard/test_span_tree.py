"""The span tree: every span exactly once, for any parent ids."""

import json

from hypothesis import given
from hypothesis import strategies as st

from spanloop.dashboard.components.spans.tree import pack
from spanloop.dashboard.view_models.span_tree import Span, layout_tree

START_NS = 1_763_600_000_000_000_000


def span(span_id: str, parent: str = "", start_ns: int = 0, duration_ns: int = 10, **rest: object) -> Span:
    known: dict[str, object] = {"name": f"span {span_id}", "status": "Unset", "trace_id": "t"} | rest
    return Span(
        span_id=span_id,
        parent_span_id=parent,
        start_ns=START_NS + start_ns,
        duration_ns=duration_ns,
        **known,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    )


def shape(spans: list[Span]) -> list[tuple[str, int]]:
    return [(line.span.span_id, line.depth) for line in layout_tree(spans)]


def test_children_follow_their_parent_in_order_of_start() -> None:
    spans = [span("c", "a", 5), span("b", "a", 2), span("a"), span("d", "b", 3), span("e", start_ns=9)]
    assert shape(spans) == [("a", 0), ("b", 1), ("d", 2), ("c", 1), ("e", 0)]


def test_a_missing_parent_makes_a_root() -> None:
    assert shape([span("b", "gone", 1), span("a")]) == [("a", 0), ("b", 0)]


def test_a_parent_in_another_trace_is_no_parent() -> None:
    assert shape([span("a"), span("b", "a", 1, trace_id="other")]) == [("a", 0), ("b", 0)]


def test_a_cycle_is_entered_at_its_earliest_span() -> None:
    assert shape([span("a", "b", 0), span("b", "a", 1), span("s", "s", 2)]) == [("s", 0), ("a", 0), ("b", 1)]


def test_depth_has_no_limit() -> None:
    spans = [span(str(number), str(number - 1) if number else "", number) for number in range(3_000)]
    lines = layout_tree(spans)
    assert [line.depth for line in lines] == list(range(3_000))
    assert json.loads(pack(lines))["columns"]["depth"] == list(range(3_000))


@given(
    st.lists(
        st.tuples(st.integers(0, 15), st.integers(0, 15), st.integers(0, 10**9), st.integers(0, 10**9)),
        unique_by=lambda item: item[0],
        max_size=16,
    )
)
def test_every_span_appears_once_and_bars_stay_inside(rows: list[tuple[int, int, int, int]]) -> None:
    spans = [span(str(span_id), str(parent), start, took) for span_id, parent, start, took in rows]
    lines = layout_tree(spans)
    assert sorted(line.span.span_id for line in lines) == sorted(item.span_id for item in spans)
    for line in lines:
        assert 0 <= line.offset <= 1
        assert line.offset + line.width <= 1 + 1e-9


def test_bars_share_one_axis() -> None:
    first, second = layout_tree([span("a", duration_ns=100), span("b", "a", 50, 25)])
    assert (first.offset, first.width) == (0, 1)
    assert (second.offset, second.width) == (0.5, 0.25)


def test_kind_comes_from_the_operation_then_the_tool_then_the_name() -> None:
    assert span("a", operation="chat").kind == "llm"
    assert span("a", operation="execute_tool").kind == "tool"
    assert span("a", tool_name="search").kind == "tool"
    assert span("a", model="m").kind == "llm"
    assert span("a", name="task refund").kind == "task"
    assert span("a").kind == "other"


def test_errors_are_marked_by_status_and_by_type() -> None:
    assert span("a", status="Error").is_error
    assert span("a", status="STATUS_CODE_ERROR").is_error
    assert span("a", error_type="TimeoutError").is_error
    assert not span("a", status="Ok").is_error


def test_a_line_says_what_failed_and_what_was_asked_once() -> None:
    spans = [
        span("a", operation="chat", model="m", status="Error", error_type="KeyError", status_message="KeyError: 'b'"),
        span("b", "a", start_ns=1, input_tokens=1_500, output_tokens=2, dropped_attributes=3),
    ]
    columns = json.loads(pack(layout_tree(spans)))["columns"]
    assert columns["error"] == ["KeyError: 'b'", ""]
    assert columns["note"] == ["m", "3 attributes dropped"]
    assert columns["tokens"] == ["", "1,500 → 2"]
