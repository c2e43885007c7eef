"""What Streamlit executes, and nothing else.

Its folder goes first on ``sys.path``, where any module of ours would shadow a library of the same name.
"""
