"""Streamlit's entrypoint, executed for each session and each interaction."""
# pyright: reportUnknownMemberType=false

from html import escape

import streamlit as st

from spanloop.dashboard import navigation, visits

# An inline SVG, because browsers fetch an emoji or a named symbol from another host.
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="none" stroke="#3b82f6" stroke-width="3">'
    '<circle cx="7.5" cy="12" r="5"/><circle cx="16.5" cy="12" r="5"/></svg>'
)

# Less padding than Streamlit leaves above a page.
_STYLE = "<style>[data-testid=stMainBlockContainer]{padding-top:4.5rem;padding-bottom:3rem}</style>"


# In the bar of the navigation.
_VISITOR = (
    '<div style="position:fixed;top:0;right:3.5rem;height:3.75rem;display:flex;align-items:center;gap:.7rem;'
    'z-index:999991;font-size:.875rem"><span title="{role}">{name} · {role}</span>{link}</div>'
)
_LOGOUT = '<a href="/logout" style="font-weight:600">Log out</a>'


def main() -> None:
    """Draw the navigation, then the requested page."""
    st.set_page_config(page_title="spanloop", page_icon=_ICON, layout="wide")
    st.html(_STYLE)
    visitor = visits.visitor()
    if visitor.name != visits.ANYONE:
        link = _LOGOUT if visitor.has_session else ""
        st.html(_VISITOR.format(name=escape(visitor.name), role=visitor.role, link=link))
    st.navigation(navigation.sections(), position="top").run()


main()
