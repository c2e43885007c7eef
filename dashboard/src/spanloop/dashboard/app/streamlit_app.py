"""Streamlit's entrypoint, executed for each session and each interaction."""
# pyright: reportUnknownMemberType=false

from html import escape
from typing import Any, Final
from urllib.parse import urlsplit

import streamlit as st
from streamlit.components.v2 import component

from spanloop.dashboard import navigation, visits
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.frontend import asset

# An inline SVG, because browsers fetch an emoji or a named symbol from another host.
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="none" stroke="#3b82f6" stroke-width="3">'
    '<circle cx="7.5" cy="12" r="5"/><circle cx="16.5" cy="12" r="5"/></svg>'
)

_LOGO = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="124" height="24" viewBox="0 0 124 24">'
    '<g fill="none" stroke="#3b82f6" stroke-width="3"><circle cx="7.5" cy="12" r="5"/>'
    '<circle cx="16.5" cy="12" r="5"/></g><text x="30" y="17.5" font-family="system-ui, sans-serif" font-size="17" '
    'font-weight="650" letter-spacing="-.3" fill="#3b82f6">spanloop</text></svg>'
)


# In the bar of the navigation.
_VISITOR = '<div class="visitor"><span title="{name}, {role}">{name} · {role}</span>{link}</div>'
_LOGOUT = '<a href="/logout">Log out</a>'
_links: Final[Any] = component("spanloop_links", js=asset("common.js") + asset("links.js"))


def main() -> None:
    """Draw the navigation, then the requested page."""
    st.set_page_config(page_icon=_ICON, layout="wide")
    st.logo(_LOGO, size="medium")
    _links(key="links")
    visitor = visits.visitor()
    if visitor.name != visits.ANYONE:
        link = _LOGOUT if visitor.has_session else ""
        st.html(_VISITOR.format(name=escape(visitor.name), role=visitor.role, link=link))
    page = st.navigation(navigation.sections(), position="top")
    name = urlsplit(st.context.url or "").path.rstrip("/").rpartition("/")[2]
    if name and name not in {page.url_path, *navigation.paths()}:
        st.warning(f"There is no page /{escape_md(name)}; this is {page.title}.", icon=":material/link_off:")
    page.run()


main()
