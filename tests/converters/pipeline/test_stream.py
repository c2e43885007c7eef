"""Any number of spans converts in bounded memory: ten million, or the number in ``SPANLOOP_STREAM_SPANS``."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "stream.py"
SPANS = int(os.environ.get("SPANLOOP_STREAM_SPANS", "10000000"))
MOST_MIB = 2_048


@pytest.mark.slow
@pytest.mark.timeout(4 * 3_600)
def test_ten_million_spans_convert_in_less_than_two_gibibytes() -> None:
    command = [sys.executable, str(BENCHMARK), "--spans", "100000", str(SPANS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    peaks = [int(mebibytes.replace(",", "")) for mebibytes in re.findall(r"peak ([\d,]+) MiB", done.stdout)]
    assert len(peaks) == 2, done.stdout
    assert max(peaks) < MOST_MIB, done.stdout
