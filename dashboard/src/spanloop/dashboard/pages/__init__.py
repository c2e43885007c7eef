"""The pages, one file each; ``app/streamlit_app.py`` lists them in order."""
