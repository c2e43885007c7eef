"""Stored rows turned into what a page shows: pure functions over frozen values and frames, without Streamlit."""
