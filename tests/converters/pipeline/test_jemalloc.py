"""What a conversion frees is there for the next one, without asking the kernel again."""

import os
import subprocess
import sys
from typing import Final

import pytest

VARIABLE: Final = "_RJEM_MALLOC_CONF"
FAULTS: Final = """
import resource
import time
import spanloop.pipeline
import polars as pl

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    pl.int_range(8_000_000, eager=True).sort(descending=True)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = faults()
time.sleep(2)
print(first, faults())
"""


def page_faults(settings: str | None) -> tuple[int, int]:
    """Of the first time that 64 MB are made and freed, and of the second, two seconds later."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment |= {} if settings is None else {VARIABLE: settings}
    done = subprocess.run([sys.executable, "-c", FAULTS], env=environment, capture_output=True, text=True, check=True)
    first, second = map(int, done.stdout.split())
    return first, second


@pytest.mark.skipif(sys.platform != "linux", reason="counts page faults as Linux does")
def test_freed_memory_is_kept() -> None:
    first, second = page_faults(None)
    assert second < first / 10


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="counts page faults as Linux does")
def test_what_the_environment_says_is_left_as_it_is() -> None:
    first, second = page_faults("dirty_decay_ms:0,muzzy_decay_ms:0")
    assert second > first / 2
