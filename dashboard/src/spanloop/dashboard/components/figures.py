"""Figures of a page: each is a number with its name, and leads to the rows that it counts."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from streamlit.components.v2 import component

from spanloop.dashboard.frontend import asset

_figures: Final[Any] = component(
    "spanloop_figures",
    html='<dl class="figures"></dl>',
    css=asset("figures.css"),
    js=asset("common.js") + asset("figures.js"),
)


class Figure(NamedTuple):
    """A number of a page."""

    label: str
    value: str
    help: str = ""
    href: str = ""
    """Address of the rows behind the number; empty for none."""


def show(figures: Sequence[Figure], *, key: str) -> None:
    """Draw figures in a row."""
    _figures(data={"figures": [figure._asdict() for figure in figures]}, key=key)
