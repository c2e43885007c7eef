"""Span trees of Agent Lightning 0.3.0's own tests of its adapters, as plain data with texts of our own.

Names, parents, times, attributes and kinds of ids are theirs (``tests/adapter/*.py`` at its tag v0.3.0). Its tests of
helpers that read no spans are left out. ``record`` asks its adapters, in its environment; ``theirs.json`` is what they
said, and ``differences.json`` what spanloop makes of a tree instead, and why.
"""

from typing import Final

from . import conversations, proxy, triplets

TREES: Final = (*triplets.TREES, *conversations.TREES, *proxy.TREES)
