"""What glibc's malloc is told: the collector's buffers of a few megabytes come and go with every request.

By default malloc gives such memory back to the kernel each time, and a fresh page costs more than what is written into
it: half of the time to write a request of 1.6 MB again.
"""

import ctypes
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of ``malloc.h``, mallopt(3)."""
_KEPT_BYTES: Final = 16 * 2**20
"""By each arena: one for the event loop, one for each thread that checks or writes."""
_MAPPED_BYTES: Final = 8 * 2**20
"""Larger pieces are still mapped by themselves and given back, so that one large body does not stay."""


def keep_freed_memory() -> bool:
    """Let malloc keep some freed memory for the next request; False where the C library has no such setting."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)) and bool(mallopt(_MMAP_THRESHOLD, _MAPPED_BYTES))
