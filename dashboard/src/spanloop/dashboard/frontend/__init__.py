"""Scripts and styles of the two components that Streamlit has no element for: the table and the filter bar."""
