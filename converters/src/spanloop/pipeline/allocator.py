"""What polars' malloc is told: what a batch frees is kept for a minute, and the next batch finds it.

Otherwise much of it goes back to the kernel in the middle of a conversion and comes again as fresh pages, which takes
from a tenth to a quarter of its CPU time.
"""

import os
from typing import Final

_VARIABLE: Final = "_RJEM_MALLOC_CONF"
_SETTINGS: Final = "dirty_decay_ms:60000,muzzy_decay_ms:60000"


def keep_freed_memory() -> None:
    """Let polars keep freed memory for a while, unless the environment says something about it already.

    Its jemalloc reads the environment when polars is loaded: later than that this changes nothing.
    """
    os.environ.setdefault(_VARIABLE, _SETTINGS)
