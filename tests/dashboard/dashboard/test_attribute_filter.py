"""A filter on an attribute finds the traces and episodes of a span, or of a span's resource, that has the value; an
empty value stands for every value.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import pytest

from spanloop.dashboard.queries import lists
from spanloop.dashboard.view_models.filters import Filters
from spanloop.store import Store

from .dashboard_seeding import insert

START: Final = datetime(2026, 3, 1, 10, tzinfo=UTC)
SPANS: Final[Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]]] = {
    "a": ({"user.id": "ann", "region": "north"}, {"region": "west"}),
    "b": ({"region": "south"}, {"enduser.id": "ann"}),
    "c": ({"langfuse.user.id": "bob", "note": "ann"}, {"region": "north"}),
    "d": ({}, {}),
}
"""Trace → attributes of its span, and of the span's resource."""


@pytest.fixture
def attributed(store: Store) -> Store:
    insert(
        store,
        "otel_traces",
        [
            {
                "Timestamp": START,
                "TraceId": trace * 32,
                "SpanId": trace * 16,
                "SpanName": "chat",
                "ServiceName": "app",
                "SpanAttributes": [{"key": key, "value": value} for key, value in attributes.items()],
                "ResourceAttributes": [{"key": key, "value": value} for key, value in resource.items()],
            }
            for trace, (attributes, resource) in SPANS.items()
        ],
    )
    insert(
        store,
        "episodes",
        [{"episode_id": trace, "revision": 1, "started_at": START, "trace_ids": [trace * 32]} for trace in SPANS],
    )
    return store


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("user", "ann", "ab"),
        ("user", "bob", "c"),
        ("user", "nobody", ""),
        ("attr", "region=north", "ac"),
        ("attr", "region=south", "b"),
        ("attr", "color=red", ""),
        ("attr", "region=", "abc"),
        ("attr", "color=", ""),
    ],
)
def test_the_value_is_one_of_a_span_or_of_its_resource(
    attributed: Store, field: str, value: str, expected: str
) -> None:
    filters = Filters(values={field: (value,)})
    episodes = lists.fetch_episodes(attributed, filters, "", None)
    traces = lists.fetch_traces(attributed, filters, "", None)
    assert sorted(episodes.rows["episode_id"]) == list(expected)
    assert sorted(traces.rows["trace_id"]) == [trace * 32 for trace in expected]
