"""Where models come from, and whether what came can be trained and served.

Importing this package loads nothing heavy; what needs torch runs in a process of its own.
"""

from .fetch import fetch_model

__all__ = ["fetch_model"]
