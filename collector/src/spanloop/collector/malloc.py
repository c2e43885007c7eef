"""Tune glibc's malloc to keep freed memory for the next request.

Each request allocates and frees buffers of a few megabytes. By default malloc returns such memory to the kernel, and a
new page costs more than writing into it: for a request of 1.6 MB, half of the write time on top.
"""

import ctypes
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of ``malloc.h``, mallopt(3)."""
_RETAINED_BYTES: Final = 16 * 2**20
"""Per arena: one for the event loop, one for each validation or writer thread."""
_MMAP_BYTES: Final = 8 * 2**20
"""Larger buffers are still mapped separately and returned, so that one large body does not keep its memory."""


def keep_freed_memory() -> bool:
    """Let malloc keep some freed memory for the next request; False when the C library has no such setting."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_TRIM_THRESHOLD, _RETAINED_BYTES)) and bool(mallopt(_MMAP_THRESHOLD, _MMAP_BYTES))
