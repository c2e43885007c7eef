"""The filter bar of a list: range of time, filters, search box and saved views, all in the address."""
# pyright: reportUnknownMemberType=false

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

import streamlit as st
from streamlit.components.v2 import component

from spanloop.dashboard import preferences, resources, visits
from spanloop.dashboard.components import page_frame
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.record_list import address
from spanloop.dashboard.components.tables import zone_name
from spanloop.dashboard.frontend import asset
from spanloop.dashboard.queries import facets
from spanloop.dashboard.view_models.filters import (
    BY_NAME,
    FIELDS,
    LIST_NAMES,
    TIME_LABELS,
    Filters,
    parse_filters,
    time_text,
    value_text,
)
from spanloop.store import Store

_bar: Final[Any] = component(
    "spanloop_filters",
    html='<div class="filter-host"></div>',
    css=asset("filters.css"),
    js=asset("common.js") + asset("filters.js"),
)
_SHORT: Final = {"": "All", "24h": "24 h", "7d": "7 d"}
_VIEW_PARAMETERS: Final = {
    "callee",
    "caller",
    "view",
    "group",
    "episode",
    "trace",
    "step",
    "compare",
    "queue",
    "seed",
    "at",
    "rule",
    "by",
    "conversation",
    "turn",
    "turns",
    "text",
    "every",
}


def read_filters() -> Filters:
    """Return the filters that the address states, and say what is wrong with it."""
    parameters = {name: st.query_params.get_all(name) for name in st.query_params}
    filters = parse_filters(parameters, now=resources.now(), zone=resources.time_zone())
    unknown = sorted(set(parameters) - {*LIST_NAMES, *_VIEW_PARAMETERS})
    problems = [*filters.problems, *(f"there is no filter {name!r}" for name in unknown)]
    if problems:
        st.warning(
            f"The address says something that filters nothing: {escape_md('; '.join(problems))}.",
            icon=":material/link_off:",
        )
    return filters


@st.fragment
def show(
    store: Store,
    filters: Filters,
    *,
    page: str,
    search_hint: str,
    names: tuple[str, ...] = (),
    view: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Draw the bar.

    Args:
        store: The store, which knows the values of a field.
        filters: The filters of the address.
        page: Path of the page.
        search_hint: What the search box finds; empty draws none.
        names: The fields that the page can be filtered by; all without.
        view: Parameters of the address that a change of a filter leaves as they are.
    """
    page_frame.remember_list(page)
    zone = resources.time_zone()
    start, end = filters.time
    key, user = f"filters_{page}", visits.visitor().name
    # Read before the bar is drawn: drawing it once more would take the address of before, and lose a filter that was
    # chosen meanwhile.
    pressed: Any = st.session_state.get(key, {})
    facet = _fetch_facet(store, filters, pressed.get("facet"), remembered=f"facet_{page}")
    if saved := pressed.get("view"):
        stored = None if saved["query"] is None else str(saved["query"])
        preferences.save_view(resources.data_dir(), user, page, str(saved["name"]), stored)
    query = filters.query(**view)
    data: dict[str, Any] = {
        "path": page,
        "query": query,
        "list": {"drawn": f"{page}?{query}", "names": LIST_NAMES},
        "clear": address(page, **view),
        "time": {
            "value": filters.time_value,
            "label": time_text(filters.time_value, zone),
            "zone": f"{zone} ({zone_name()})" if zone_name() != zone else zone,
            "from": _iso(start) if ".." in filters.time_value and start else "",
            "to": _iso(end) if ".." in filters.time_value and end < 4_000_000_000 else "",
            "presets": [
                {"value": value, "label": label, "short": _SHORT.get(value)} for value, label in TIME_LABELS.items()
            ],
        },
        "chips": [
            {
                "field": name,
                "value": value,
                "label": BY_NAME[name].label,
                "text": value_text(name, value),
            }
            for name, values in filters.values.items()
            for value in values
        ],
        "fields": [
            {
                "id": each.name,
                "label": each.label,
                "kind": each.kind,
                "help": each.help,
                "options": [{"value": option} for option in each.options] or None,
            }
            for each in FIELDS
            if not names or each.name in names
        ],
        "quick": [{"field": "outcome", "value": "failure", "label": "Failed"}]
        if not names or "outcome" in names
        else [],
        "facet": facet,
        "hasSearch": bool(search_hint),
        "search": filters.text,
        "searchHint": search_hint,
        "views": [
            {"name": name, "href": f"{page}?{query}"}
            for name, query in preferences.saved_views(resources.data_dir(), user, page).items()
        ],
    }
    _bar(data=data, key=key, on_facet_change=lambda: None, on_view_change=lambda: None)


def _fetch_facet(
    store: Store, filters: Filters, opened: Mapping[str, str] | None, *, remembered: str
) -> Mapping[str, Any] | None:
    """Return the values of the field that was just opened; without one, those of the field that was opened last."""
    if opened and opened["field"] in BY_NAME:
        name, key = opened["field"], opened["key"]
        frame = facets.fetch_values(store, filters, name, key)
        values = [{"value": value, "count": f"{count:,}"} for value, count in frame.iter_rows()]
        st.session_state[remembered] = {"field": name, "key": key, "values": values}
    return st.session_state.get(remembered)


def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
