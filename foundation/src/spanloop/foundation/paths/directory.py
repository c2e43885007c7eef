"""The data directory: paths of all files of one spanloop installation.

Invariant: a directory that ``open()`` returned holds a ``version.json`` of exactly this layout. A directory with
another layout, or with spanloop's files but no ``version.json``, is rejected with the required version, not upgraded.

``models``, ``jobs`` and ``keys`` lie in the shared folder where ``SPANLOOP_SHARED_DIR`` names one, which is never
created here: it would hide that the folder is not mounted.
"""

import errno
import json
import os
import secrets
import shlex
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final, Self

from spanloop.foundation.errors import DataDirectoryError
from spanloop.semconv.environment import (
    SHARED_DIR_ENV,
    RunningService,
    ServiceAddress,
    default_data_dir,
    find_service,
    read_run_file,
    shared_dir,
)

LAYOUT: Final = 1
"""Layout version that this code reads and writes; incremented when the meaning of a path changes."""

_OWNED_NAMES: Final = ("clickhouse", "spool", "generations", "control.db", "models", "jobs")


@dataclass(frozen=True)
class DataDir:
    """Paths inside one data directory. The constructor does not access the disk; ``open()`` creates and checks it.

    Args:
        path: The directory; relative paths and ``~`` are resolved. Default: `default_data_dir`.
    """

    path: Path

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        chosen = default_data_dir() if path is None else Path(path).expanduser().absolute()
        object.__setattr__(self, "path", chosen)

    @property
    def version_file(self) -> Path:
        """``{"layout": n, "spanloop": "version that created it"}``."""
        return self.path / "version.json"

    @property
    def up_lock(self) -> Path:
        """Lock (``flock``) of the running ``spanloop up``."""
        return self.path / "up.lock"

    @property
    def run(self) -> Path:
        """Run files: URL and process id of each running service."""
        return self.path / "run"

    @property
    def clickhouse(self) -> Path:
        """The embedded server's data."""
        return self.path / "clickhouse"

    @property
    def clickhouse_conf(self) -> Path:
        """The embedded server's configuration, lock and own log."""
        return self.path / "clickhouse.conf"

    @property
    def clickhouse_secret(self) -> Path:
        """The embedded server's password, 0600."""
        return self.run / "clickhouse.secret"

    @property
    def shared(self) -> Path:
        """The folder that the roles on all hosts share: ``SPANLOOP_SHARED_DIR``, else this directory."""
        return shared_dir(self.path)

    @property
    def keys(self) -> Path:
        """API keys, hashed, 0600."""
        return self.shared / "keys.json"

    @property
    def users(self) -> Path:
        """Users of the dashboard with hashed passwords, 0600."""
        return self.keys.with_name("users.json")

    @property
    def audit(self) -> Path:
        """Audit log of the dashboard's actions, JSON lines, 0600."""
        return self.path / "audit.jsonl"

    @property
    def spool(self) -> Path:
        """The collector's spool: acknowledged request bodies that are not in ClickHouse yet."""
        return self.path / "spool"

    @property
    def generations(self) -> Path:
        """The gateway's spool: captured generations that are not in ClickHouse yet."""
        return self.path / "generations"

    @property
    def control_db(self) -> Path:
        """Jobs, schedules and model versions (SQLite)."""
        return self.path / "control.db"

    @property
    def gateway(self) -> Path:
        """The gateway's admin token and last deployment."""
        return self.path / "gateway"

    @property
    def models(self) -> Path:
        """Served and trainable model folders, ``<name>/<version>/``."""
        return self.shared / "models"

    @property
    def jobs(self) -> Path:
        """Folders of training jobs, one each."""
        return self.shared / "jobs"

    @property
    def runs(self) -> Path:
        """Folders of the task runner, one for each run."""
        return self.path / "runs"

    @property
    def logs(self) -> Path:
        """``<service>.log``: output of the services."""
        return self.path / "logs"

    def open(self) -> Self:
        """Create the directory, or check the layout of an existing one. Returns this object, for chaining.

        Raises:
            DataDirectoryError: The layout is not this one, the directory is not writable, no space is left, or the
                shared folder does not exist.
        """
        with _disk_errors(self.path):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.version_file.exists():
                self._check_layout(self.version_file.read_text(encoding="utf-8"))
            else:
                self._reject_unversioned()
                write_atomically(self.version_file, json.dumps({"layout": LAYOUT, "spanloop": version("spanloop")}))
            for folder in (self.run, self.logs):
                folder.mkdir(mode=0o700, exist_ok=True)
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise _not_writable(self.path)
        if not self.shared.is_dir():
            raise DataDirectoryError(
                f"{SHARED_DIR_ENV} names {self.shared}, which is not a directory.",
                next_step=f"Mount it; or, for a new one: mkdir -p {shlex.quote(str(self.shared))}",
            )
        return self

    def write(self, path: Path, text: str, *, mode: int = 0o600) -> None:
        """Replace a file atomically and durably. DataDirectoryError: it is not writable, or no space is left."""
        with _disk_errors(self.path):
            write_atomically(path, text, mode=mode)

    @contextmanager
    def announce(self, service: str, url: str) -> Generator[None]:
        """Announce this process and its ``url`` in ``run/<service>.json`` while the context is active."""
        run_file = self.run / f"{service}.json"
        self.write(run_file, json.dumps({"url": url, "pid": os.getpid()}))
        try:
            yield
        finally:
            announced = read_run_file(self.path, service)
            if announced is None or announced.pid == os.getpid():
                run_file.unlink(missing_ok=True)

    def running(self, service: str) -> RunningService | None:
        """Return a service of this machine that announced itself and whose process is alive, else None."""
        return read_run_file(self.path, service)

    def find(self, service: str) -> ServiceAddress | None:
        """Return where to reach a service: the configured address, else that of `running`, else None.

        Raises:
            ConfigurationError: The configured address is not a URL of a server.
        """
        return find_service(self.path, service)

    def _check_layout(self, text: str) -> None:
        try:
            content = json.loads(text)
            layout = int(content["layout"])
            writer = content.get("spanloop")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataDirectoryError(
                f"{self.version_file} is not a version file of spanloop: got {text[:80]!r}, expected "
                f'{{"layout": {LAYOUT}}}.',
                next_step="Restore it from a backup, or name another directory with --data-dir.",
            ) from error
        if layout != LAYOUT:
            raise DataDirectoryError(
                f"The data directory {self.path} has layout {layout}, created by spanloop {writer or '(unknown)'}; "
                f"this is spanloop {version('spanloop')}, which reads layout {LAYOUT}.",
                next_step=(
                    f"Use spanloop {writer}: pip install /path/to/spanloop"
                    if writer
                    else "Use the spanloop that created it"
                )
                + ", or name another directory with --data-dir.",
            )

    def _reject_unversioned(self) -> None:
        names = [name for name in _OWNED_NAMES if (self.path / name).exists()]
        # Check again, because another process may have created the version file in between.
        if names and not self.version_file.exists():
            raise DataDirectoryError(
                f"The data directory {self.path} has no version.json but holds {', '.join(names)}: "
                "its layout is unknown.",
                next_step="Restore version.json from a backup, or name another directory with --data-dir.",
            )


def write_atomically(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Replace a file atomically: readers, and a crash at any point, see the complete old or new content.

    The folder is synced as well, which makes the rename durable. The cost is two fsyncs: not for hot paths.

    Raises:
        OSError: The file system reported an error.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 (a descriptor, for the mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Sync a directory (fsync), which makes created, renamed and removed entries durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _disk_errors(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise disk_error(path, error) from error


def disk_error(path: Path, error: OSError) -> DataDirectoryError:
    """Convert an error of a disk operation below ``path`` to an error with a next step."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return DataDirectoryError(
            f"No space is left for the data directory {path}: {error.strerror} ({_free(path)} free).",
            next_step="Free disk space, or name a directory on another disk with --data-dir.",
        )
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return _not_writable(path)
    if error.errno in {errno.ENOTDIR, errno.EEXIST}:
        return DataDirectoryError(
            f"The data directory {path} cannot be created: a file is in its place.",
            next_step="Name another directory with --data-dir.",
        )
    return DataDirectoryError(
        f"The data directory {path} cannot be used: {error}.", next_step="Name another directory with --data-dir."
    )


def _not_writable(path: Path) -> DataDirectoryError:
    return DataDirectoryError(
        f"The data directory {path} is not writable by this user.",
        next_step="Change its owner or permissions, or name another directory with --data-dir.",
    )


def _free(path: Path) -> str:
    for folder in (path, *path.parents):
        if folder.exists():
            return f"{shutil.disk_usage(folder).free / 2**20:.0f} MiB"
    return "0 MiB"
