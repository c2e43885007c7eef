"""Streamlit puts this folder first on ``sys.path``; other modules here would shadow libraries of the same name."""
