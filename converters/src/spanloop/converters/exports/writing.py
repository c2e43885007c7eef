"""A folder with data files and a manifest.

Invariant: the folder appears whole or not at all, and the same rows, query and options give the same bytes: nothing in
it tells when or where it was made. A folder that is not an earlier export is never touched.
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

from spanloop.foundation.errors import ConversionError

from ..options import CONVERTER_VERSION
from .base import ExportOptions, Kind, Made

MANIFEST: Final = "manifest.json"
_ROWS_A_GROUP: Final = 10_000


class Pinned(NamedTuple):
    """An episode at one revision."""

    episode_id: str
    revision: int


class Manifest(NamedTuple):
    """Content of ``manifest.json``."""

    kind: str
    format: int
    converter_version: str
    query: Mapping[str, object]
    options: Mapping[str, object]
    unit: str
    """The table whose rows are counted."""
    accepted: int
    rejected: Mapping[str, int]
    """Reason → rows."""
    rows: int
    """Rows or lines in the files."""
    files: Mapping[str, str]
    """Path → SHA-256."""
    content_sha256: str
    """Digest of the files' names and digests."""
    episodes: Sequence[Pinned]


def export(
    name: str,
    kind: Kind,
    batches: Iterable[pl.DataFrame],
    folder: Path,
    *,
    query: Mapping[str, object],
    episodes: Sequence[Pinned],
    options: ExportOptions,
) -> Manifest:
    """Write ``batches`` as one export.

    Args:
        name: The kind's name.
        kind: What to make.
        batches: Rows of the kind's source, whole groups each; one data file is written for each that leaves any.
        folder: Where to; an earlier export there is replaced.
        query: What was asked of the store.
        episodes: What it answered from.
        options: How to make it.

    Raises:
        ConversionError: When ``folder`` holds something else.
    """
    _check(folder)
    rejected: Counter[str] = Counter()
    files: dict[str, str] = {}
    accepted = rows = 0
    with _appearing(folder) as work:
        if kind.readme:
            files["README.md"] = _write(work / "README.md", kind.readme.encode())
        for made in (kind.make(batch, options) for batch in batches):
            accepted += made.accepted
            rejected.update(made.rejected)
            rows += len(made.rows)
            if len(made.rows):
                path = Path("data") / f"train-{len(files) - bool(kind.readme):05d}.{kind.suffix}"
                files[path.as_posix()] = _write_rows(work / path, made)
        manifest = Manifest(
            kind=name,
            format=1,
            converter_version=CONVERTER_VERSION,
            query=query,
            options=asdict(options),
            unit=str(kind.source),
            accepted=accepted,
            rejected=dict(sorted(rejected.items())),
            rows=rows,
            files=files,
            content_sha256=sha256(json.dumps(sorted(files.items())).encode()).hexdigest(),
            episodes=sorted(episodes),
        )
        _write(work / MANIFEST, (json.dumps(manifest._asdict(), indent=1, sort_keys=True) + "\n").encode())
    return manifest


def _write_rows(path: Path, made: Made) -> str:
    path.parent.mkdir(exist_ok=True)
    if isinstance(made.rows, list):
        return _write(path, "".join(f"{line}\n" for line in made.rows).encode())
    made.rows.write_parquet(path, compression="zstd", row_group_size=_ROWS_A_GROUP, statistics=False)
    return _write(path, None)


def _write(path: Path, content: bytes | None) -> str:
    """Write ``content`` (None: the file is there) to the disk; its SHA-256."""
    with path.open("r+b" if content is None else "w+b") as file:
        if content is not None:
            file.write(content)
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        digest = sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _check(folder: Path) -> None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        is_ours = "content_sha256" in json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError):
        is_ours = False
    if not is_ours:
        raise ConversionError(
            f"{folder} is there already and is no export of spanloop's.",
            next_step="Name a folder that does not exist yet.",
        )


@contextmanager
def _appearing(folder: Path) -> Generator[Path]:
    """A work folder beside ``folder`` that takes its place when all went well, and is gone when it did not."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = folder.parent / f".{folder.name}.{os.getpid()}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        yield work
        if folder.exists():
            shutil.rmtree(folder)
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
