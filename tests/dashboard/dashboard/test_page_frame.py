from streamlit.testing.v1 import AppTest

PAGE = """
import streamlit as st
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData
from streamlit.runtime.scriptrunner_utils.script_run_context import get_script_run_ctx

from spanloop.dashboard.components.page_frame import draw_again

st.text(st.query_params["agent"])
if "acted" not in st.session_state:
    st.session_state["acted"] = True
    context = get_script_run_ctx()
    chosen = RerunData(query_string="agent=new", page_script_hash=context.page_script_hash)
    context.script_requests.request_rerun(chosen)
    draw_again()
"""
"""A filter is chosen while the page acts, such as while it stores a judgement."""


def test_a_filter_chosen_while_the_page_acts_is_what_the_page_shows() -> None:
    app = AppTest.from_string(PAGE)
    app.query_params["agent"] = "old"
    app.run()
    assert not app.exception
    assert [text.value for text in app.text] == ["new"]
