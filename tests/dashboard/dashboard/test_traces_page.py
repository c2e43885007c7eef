"""The Traces page: whatever arrived is listed at once, and one trace shows its spans and its episode."""

import pytest

from spanloop.store import Store

from .dashboard_driver import follow, links, open_page, page_links, table, text_of
from .dashboard_seeding import Seeded, insert, spans


@pytest.mark.usefixtures("environment")
def test_spans_are_listed_before_anything_is_converted(store: Store) -> None:
    insert(store, "otel_traces", spans(10))
    app = open_page("traces")
    listed = table(app)
    assert listed.height == 2
    assert listed["spans"].to_list() == [5, 5]


def test_a_trace_shows_its_spans_and_leads_to_its_episode(seeded: Seeded) -> None:
    app = open_page("traces")
    assert table(app).height == seeded.episodes
    trace_id = str(table(app)["trace"][0])
    assert str(table(app)["input"][0]).startswith("Can I get a refund")
    app = follow(links(app)[0])
    assert app.query_params["trace"] in (trace_id, [trace_id])
    assert not app.exception
    assert "**5** spans" in text_of(app)
    assert any(label.startswith("Episode ") for label in page_links(app))


@pytest.mark.usefixtures("seeded")
def test_filters_narrow_the_list_and_nothing_is_said_when_nothing_matches() -> None:
    everything = table(open_page("traces")).height
    failed = open_page("traces", outcome="failure")
    assert 0 < table(failed).height < everything
    empty_page = open_page("traces", q="no such trace")
    assert "No trace matches." in text_of(empty_page)
    assert "No span of this trace is stored." in text_of(open_page("traces", trace="0" * 32))
