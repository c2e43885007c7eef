"""What the pages show, computed without Streamlit: pure functions over frozen values and frames."""
