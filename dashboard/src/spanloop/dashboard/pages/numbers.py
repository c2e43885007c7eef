"""Show latency, cost, error rates, what failures waste, and who calls whom; every figure opens its episodes."""
# pyright: reportUnknownMemberType=false

from collections.abc import Mapping
from typing import ClassVar, Final

import streamlit as st

from spanloop.dashboard.components import filter_bar
from spanloop.dashboard.components.numbers import agents, cost, errors, latency, wasted
from spanloop.dashboard.components.page_frame import no_span_yet, page
from spanloop.dashboard.page import Page, PageContext
from spanloop.dashboard.queries import numbers, overview
from spanloop.foundation.settings import load_configuration

_LATENCY: Final = "Latency"
_COST: Final = "Tokens and cost"
_ERRORS: Final = "Errors over time"
_WASTED: Final = "Wasted by failures"
_AGENTS: Final = "Agents"
_BY: Final[Mapping[str, tuple[str, ...]]] = {
    _LATENCY: numbers.LATENCY_BY,
    _COST: tuple(numbers.COST_BY),
    _ERRORS: tuple(numbers.ERRORS_BY),
    _WASTED: (),
    _AGENTS: (),
}
"""View → what its figures can be grouped by; the first is the default."""
_LABELS: Final = {"policy": "version"}
"""Field → its name in the address, where that is another one."""


class NumbersPage(Page):
    """Latency, cost, error rates and waste."""

    title: ClassVar[str] = "Numbers"
    icon: ClassVar[str] = ":material/query_stats:"

    def show(self, context: PageContext) -> None:
        """Draw the view that the URL names."""
        with page(
            "Numbers",
            "How long calls take, what they cost, and how often they fail. Filters select episodes, and every number "
            "is about these. A row, bar or point opens the episodes behind it.",
        ):
            store = context.store()
            filters = filter_bar.read_filters()
            view, by = _view()
            shown = {"view": view} | ({"by": _LABELS.get(by, by)} if by else {})
            filter_bar.show(store, filters, page="numbers", search_hint="Words in messages and errors", view=shown)
            if not overview.fetch_totals(store, 0).episodes:
                no_span_yet(store, "No episode yet, so there is nothing to count.")
            elif not numbers.has_episode(store, filters):
                st.info("No episode matches.", icon=":material/filter_alt_off:")
            elif view == _LATENCY:
                latency.show(store, filters, by)
            elif view == _ERRORS:
                errors.show(store, filters, by)
            elif view == _AGENTS:
                agents.show(store, filters, view)
            else:
                prices = load_configuration(context.data_dir.path).prices
                if view == _COST:
                    cost.show(store, filters, prices, by)
                else:
                    wasted.show(store, filters, prices)


def _view() -> tuple[str, str]:
    """Draw the controls of the view; return it, and what its figures are grouped by."""
    with st.container(horizontal=True):
        view = _choice("View", list(_BY), key="view")
        fields = {_LABELS.get(name, name): name for name in _BY[view]}
        if not fields:
            return view, ""
        by = _choice("By", list(fields), key="by")
    return view, fields[by]


def _choice(label: str, options: list[str], *, key: str) -> str:
    """Draw a choice that the address states; the first option is the default."""
    chosen = st.segmented_control(
        label, options, default=options[0], key=key, bind="query-params", label_visibility="collapsed", required=True
    )
    return chosen or options[0]
