"""Errors in words and codes: whether a text tells of a failure, and of which."""
