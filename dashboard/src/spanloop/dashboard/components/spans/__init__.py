"""Spans as a tree, and one span beside it."""
