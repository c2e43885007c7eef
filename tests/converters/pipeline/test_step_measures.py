"""Cached tokens, the time to the first token and tools' durations reach the rows that lists read."""

import pytest

from spanloop.pipeline import run
from spanloop.store import Store

from ..converters.converters_world import OPENING, answers, asks, text, trace_id
from ..converters.pipeline_feed import Feed

QUERY = (
    "SELECT cached_tokens, first_token_ns, result_tools, result_durations_ns > [0] AS is_measured "
    "FROM step_summaries FINAL ORDER BY step"
)


@pytest.mark.parametrize(
    ("attributes", "cached", "first_ns"),
    [
        (
            {"gen_ai.usage.cache_read.input_tokens": "7", "gen_ai.response.time_to_first_chunk": "0.25"},
            7,
            250_000_000,
        ),
        ({"llm.token_count.prompt_details.cache_read": "3", "ai.response.msToFirstChunk": "12.5"}, 3, 12_500_000),
        ({"gen_ai.usage.cached_tokens": "none", "gen_ai.response.time_to_first_chunk": "-1"}, 0, None),
        ({}, 0, None),
    ],
    ids=["semantic conventions", "other names", "nonsense", "not recorded"],
)
def test_what_a_span_recorded_is_stored_and_the_rest_is_not_known(
    feed: Feed, store: Store, attributes: dict[str, str], cached: int, first_ns: int | None
) -> None:
    call = asks("c1", arguments={"limit": 1})
    feed.world.call(OPENING, call, trace=trace_id("t"), attributes=attributes)
    feed.world.tool("c1", "sunny", trace=trace_id("t"))
    feed.world.call((*OPENING, call, answers("c1", "sunny")), text("assistant", "It is sunny."), trace=trace_id("t"))
    feed.send()
    run(store)
    assert feed.sql(QUERY).rows() == [(cached, first_ns, ["search"], 1), (0, None, [], 0)]


def test_tools_that_only_spans_name_are_measured_with_the_step_before_them(feed: Feed, store: Store) -> None:
    feed.world.call(OPENING, text("assistant", "I look it up."), trace=trace_id("t"))
    feed.world.tool("", "sunny", trace=trace_id("t"))
    feed.world.call((*OPENING, text("assistant", "It is sunny.")), text("assistant", "Yes."), trace=trace_id("t"))
    feed.send()
    run(store)
    assert feed.sql(QUERY).rows() == [(0, None, ["search"], 1), (0, None, [], 0)]
