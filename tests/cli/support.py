"""What the command line's tests share."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

SPANLOOP = Path(sys.executable).with_name("spanloop")

Run = Callable[..., subprocess.CompletedProcess[str]]
"""``spanloop ARGUMENTS, NAME=VALUE`` as a process with an environment."""
