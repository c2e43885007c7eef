"""The app's entry: ``streamlit run`` executes this file for each session and each interaction."""
# pyright: reportUnknownMemberType=false

from pathlib import Path

import streamlit as st

_PAGES = Path(__file__).parent / "pages"

# Streamlit leaves room above a page for a hero; these pages begin with their content.
_STYLE = "<style>[data-testid=stMainBlockContainer]{padding-top:4.5rem;padding-bottom:3rem}</style>"


def main() -> None:
    """Draw the navigation, then the page that was asked for."""
    st.set_page_config(page_title="spanloop", page_icon=":material/all_inclusive:", layout="wide")
    st.html(_STYLE)
    chosen = st.navigation(
        [
            st.Page(_PAGES / "overview.py", title="Overview", icon=":material/dashboard:", default=True),
            st.Page(_PAGES / "episodes.py", title="Episodes", icon=":material/forum:"),
            st.Page(_PAGES / "failures.py", title="Failures", icon=":material/error:"),
            st.Page(_PAGES / "rewards.py", title="Rewards", icon=":material/trending_up:"),
            st.Page(_PAGES / "jobs.py", title="Jobs", icon=":material/model_training:"),
            st.Page(_PAGES / "models.py", title="Models", icon=":material/deployed_code:"),
        ],
        position="top",
    )
    chosen.run()


main()
