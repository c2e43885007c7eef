"""Scripts and styles of the components that Streamlit has no element for, and the styles of every page."""

from importlib.resources import files


def asset(name: str) -> str:
    """Return a file of the frontend."""
    return (files(__name__) / name).read_text("utf-8")
