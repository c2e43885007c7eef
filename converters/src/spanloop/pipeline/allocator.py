"""Has polars keep the memory that it freed for ten seconds, so that the next batch finds it.

polars brings its own jemalloc, which reads the settings when polars is loaded: this comes before. Without it pages go
back to the kernel in the middle of a conversion and are got, and zeroed, again: a fifth of the CPU time of a batch.
What the environment says already is left as it is.
"""

import os

os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:10000,muzzy_decay_ms:10000")
