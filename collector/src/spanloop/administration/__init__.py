"""Administration of stored data: backup, restore, copy, forget and retention."""

from collections.abc import Callable

TransferProgress = Callable[[str, int, int], None]
"""Called with the current step or table, and how many bytes or rows of how many are completed (total 0: unknown)."""
