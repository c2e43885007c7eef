"""The folder of Streamlit's entrypoint; it holds no other module.

Streamlit puts this folder first on ``sys.path``, where any other module would shadow a library of the same name.
"""
