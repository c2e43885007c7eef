from streamlit.testing.v1 import AppTest


def draw_a_page_whose_filter_changes_while_it_runs() -> None:
    import streamlit as st
    from streamlit.runtime.scriptrunner_utils.script_requests import RerunData
    from streamlit.runtime.scriptrunner_utils.script_run_context import get_script_run_ctx

    from spanloop.dashboard.components.page_frame import draw_again

    st.text(st.query_params["agent"])
    if "acted" not in st.session_state:
        st.session_state["acted"] = True
        context = get_script_run_ctx()
        assert context is not None
        assert context.script_requests is not None
        chosen = RerunData(query_string="agent=new", page_script_hash=context.page_script_hash)
        context.script_requests.request_rerun(chosen)
        draw_again()


def test_a_filter_chosen_while_the_page_acts_is_what_the_page_shows() -> None:
    app = AppTest.from_function(draw_a_page_whose_filter_changes_while_it_runs)
    app.query_params["agent"] = "old"
    app.run()
    assert not app.exception
    assert [text.value for text in app.text] == ["new"]
