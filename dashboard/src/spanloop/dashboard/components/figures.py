"""Figures of a page: each is a number with its name, and leads to the rows that it counts.

They are plain HTML, which the browser shows at once; a component of our own would load its script first.
"""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import streamlit as st


class Figure(NamedTuple):
    """A number of a page."""

    label: str
    value: str
    help: str = ""
    href: str = ""
    """Address of the rows behind the number; empty for none."""


def show(figures: Sequence[Figure]) -> None:
    """Draw figures in a row."""
    st.html(f'<dl class="figures">{"".join(map(_html, figures))}</dl>')


def _html(figure: Figure) -> str:
    title = f' title="{escape(figure.help)}"' if figure.help else ""
    value = escape(figure.value)
    if figure.href:
        value = f'<a href="{escape(figure.href)}">{value}</a>'
    return f'<div class="figure"{title}><dt>{escape(figure.label)}</dt><dd>{value}</dd></div>'
