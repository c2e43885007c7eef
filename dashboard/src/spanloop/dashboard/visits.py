"""Who looks at a page: the front opens a visit for each connection of a browser, and the pages look theirs up.

Invariant: only the front opens visits, and only it sets the header that names one. A page without a visit belongs to a
viewer.
"""
# pyright: reportUnknownMemberType=false

import secrets
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, NamedTuple

import streamlit as st

from spanloop.foundation.keys.users import Role

HEADER: Final = "x-spanloop-visit"
ANYONE: Final = "anyone"
"""The name of everybody on a dashboard without a login."""


class Visitor(NamedTuple):
    """A person in front of a page."""

    name: str
    role: Role
    address: str
    """The browser's address."""
    has_session: bool = False
    """Whether the visitor logged in here, and so can log out."""


_NOBODY: Final = Visitor("nobody", Role.VIEWER, "")
_visits: Final[dict[str, Visitor]] = {}


@contextmanager
def open_visit(visitor: Visitor) -> Generator[str]:
    """Yield the header's value for one connection; it means nothing after the block."""
    token = secrets.token_urlsafe(24)
    _visits[token] = visitor
    try:
        yield token
    finally:
        del _visits[token]


def visitor() -> Visitor:
    """Return who looks at the page that runs in this thread."""
    return _visits.get(st.context.headers.get(HEADER) or "", _NOBODY)


def open_visits() -> int:
    """Return the number of browsers that are connected."""
    return len(_visits)
