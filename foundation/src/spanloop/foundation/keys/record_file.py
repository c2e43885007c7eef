"""A JSON file of records that several processes read and change: the API keys, and the dashboard's users.

Invariant: a change is atomic and durable, and made under a lock, so that no change of another process is lost. The next
read sees it. From the first record on the file exists, also after the last record is removed.
"""
# pyright: reportPrivateUsage=false
# A named tuple's _asdict is public.

import fcntl
import json
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.paths import DataDir, disk_error


class _NamedTuple(Protocol):
    def _asdict(self) -> dict[str, Any]: ...


Record = TypeVar("Record", bound=_NamedTuple)


class RecordFile(Generic[Record]):
    """The records of one file.

    Args:
        data_dir: Named in errors.
        path: The file, 0600.
        content: What it holds: ``keys``; the name of its list, and the word in errors.
        parse: Makes a record of a JSON object; raises KeyError, TypeError or ValueError for another one.
    """

    def __init__(
        self, data_dir: DataDir, path: Path, content: str, parse: Callable[[Mapping[str, Any]], Record]
    ) -> None:
        self._data_dir = data_dir
        self._path = path
        self._content = content
        self._parse = parse
        self._stamped: tuple[tuple[int, int, int], tuple[Record, ...]] | None = None

    @property
    def exists(self) -> bool:
        """Whether a record was ever made."""
        return os.path.exists(self._path)  # noqa: PTH110 - asked for each request; pathlib takes five times as long

    def read(self) -> tuple[Record, ...]:
        """Return all records in order of creation; none without the file.

        Raises:
            DataDirectoryError: The file cannot be read.
        """
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise disk_error(self._data_dir.path, error) from error
        stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        stamped = self._stamped
        if stamped is None or stamped[0] != stamp:
            self._stamped = stamped = (stamp, self._parse_file())
        return stamped[1]

    @contextmanager
    def change(self) -> Generator[list[Record]]:
        """Yield the records under an exclusive lock, and store them if the caller changed them."""
        try:
            descriptor = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise disk_error(self._data_dir.path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            records = [*self.read()]
            before = [*records]
            yield records
            if records != before:
                content = {self._content: [record._asdict() for record in records]}
                self._data_dir.write(self._path, json.dumps(content, indent=1))
        finally:
            os.close(descriptor)

    def _parse_file(self) -> tuple[Record, ...]:
        try:
            items = json.loads(self._path.read_text(encoding="utf-8"))[self._content]
            return tuple(self._parse(cast("Mapping[str, Any]", item)) for item in items)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataDirectoryError(
                f"The {self._content} in {self._path} cannot be read: {error}.",
                next_step=f"Restore the file from a backup. While it is damaged, none of the {self._content} is valid.",
            ) from error
