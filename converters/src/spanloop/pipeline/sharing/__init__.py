"""Several pipelines at once on one store: the one that leads publishes batches, and all convert them.

See docs/design/pipelines.md.
"""

from .sharing import Sharing

__all__ = ["Sharing"]
