"""One span's way through the conversion goes forward."""

import subprocess
import sys
from pathlib import Path
from typing import Final

SCRIPT: Final = Path(__file__).parents[2] / "docs" / "span_walk.py"
MOST_STEPS_BACK: Final = 5
"""Calls into a module that was left."""


def test_a_span_seldom_returns_to_a_module_that_it_left() -> None:
    printed = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=True).stdout
    *steps, last = printed.splitlines()
    assert len(steps) > 25
    assert sum("<-" in step for step in steps) == int(last.removeprefix("steps back: "))
    assert int(last.removeprefix("steps back: ")) <= MOST_STEPS_BACK, printed
