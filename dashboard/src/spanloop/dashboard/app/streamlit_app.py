"""The app's entry: ``streamlit run`` executes this file for each session and each interaction."""
# pyright: reportUnknownMemberType=false

from pathlib import Path

import streamlit as st

# Not beside this file: Streamlit offers a folder "pages" beside its entrypoint before the entrypoint has run once.
_PAGES = Path(__file__).parent.parent / "pages"

# Drawn here, because an emoji or a named symbol would be fetched from another host.
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="none" stroke="#3b82f6" stroke-width="3">'
    '<circle cx="7.5" cy="12" r="5"/><circle cx="16.5" cy="12" r="5"/></svg>'
)

# Streamlit leaves room above a page for a hero; these pages begin with their content.
_STYLE = "<style>[data-testid=stMainBlockContainer]{padding-top:4.5rem;padding-bottom:3rem}</style>"


def main() -> None:
    """Draw the navigation, then the page that was asked for."""
    st.set_page_config(page_title="spanloop", page_icon=_ICON, layout="wide")
    st.html(_STYLE)
    chosen = st.navigation(
        [
            st.Page(_PAGES / "overview.py", title="Overview", icon=":material/dashboard:", default=True),
            st.Page(_PAGES / "episodes.py", title="Episodes", icon=":material/forum:"),
            st.Page(_PAGES / "traces.py", title="Traces", icon=":material/account_tree:"),
            st.Page(_PAGES / "failures.py", title="Failures", icon=":material/error:"),
            st.Page(_PAGES / "rewards.py", title="Rewards", icon=":material/trending_up:"),
            st.Page(_PAGES / "evaluations.py", title="Evaluations", icon=":material/fact_check:"),
            st.Page(_PAGES / "compare.py", title="Compare", icon=":material/compare_arrows:"),
            st.Page(_PAGES / "jobs.py", title="Jobs", icon=":material/model_training:"),
            st.Page(_PAGES / "models.py", title="Models", icon=":material/deployed_code:"),
        ],
        position="top",
    )
    chosen.run()


main()
