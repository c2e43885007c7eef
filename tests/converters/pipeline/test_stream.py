"""As many spans as one likes convert in bounded memory: ten million, or what ``SPANLOOP_STREAM_SPANS`` says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "stream.py"
SPANS = int(os.environ.get("SPANLOOP_STREAM_SPANS", "10000000"))
MOST_MIB = 4_096


@pytest.mark.slow
@pytest.mark.timeout(4 * 3_600)
def test_a_conversion_of_any_size_stays_below_four_gigabytes() -> None:
    command = [sys.executable, str(BENCHMARK), "--spans", "100000", str(SPANS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    peaks = [int(found.replace(",", "")) for found in re.findall(r"peak ([\d,]+) MiB", done.stdout)]
    assert len(peaks) == 2, done.stdout
    assert max(peaks) < MOST_MIB, done.stdout
