"""A Streamlit app that draws hostile texts in every kind of element that reads Markdown."""

import json
import os

import streamlit as st

from spanloop.dashboard.components.markup import escape_md

TEXTS_ENV = "SPANLOOP_TEST_TEXTS"


def draw() -> None:
    """Draw each text in a container whose key is the element's kind and the text's number."""
    texts: list[str] = json.loads(os.environ[TEXTS_ENV])
    for number, stored in enumerate(texts):
        text = escape_md(stored)
        with st.container(key=f"emphasis-{number}"):
            st.markdown(f":red[✕ **{text}** failed]")
        with st.container(key=f"markdown-{number}"):
            st.markdown(text)
        with st.container(key=f"caption-{number}"):
            st.caption(text)
        with st.container(key=f"heading-{number}"):
            st.subheader(text, anchor=False)
        with st.container(key=f"error-{number}"):
            st.error(text)
        with st.container(key=f"button-{number}"):
            st.button(text, key=f"b{number}")
        with st.container(key=f"metric-{number}"):
            st.metric(text, "")
        with st.container(key=f"expander-{number}"):
            st.expander(text)
        with st.container(key=f"progress-{number}"):
            st.progress(50, text=text)
        with st.container(key=f"toggle-{number}"):
            st.toggle(text, key=f"t{number}")
        with st.container(key=f"selectbox-{number}"):
            st.selectbox("choice", [stored], key=f"s{number}", label_visibility="collapsed")
    st.markdown("All drawn.")


if __name__ == "__main__":
    draw()
