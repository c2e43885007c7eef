"""Paths of the control state in the data directory; this module does not access the disk."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

from spanloop.semconv.environment import shared_dir


@runtime_checkable
class HasPath(Protocol):
    """The part of ``spanloop.foundation.paths.DataDir`` that control state needs."""

    @property
    def path(self) -> Path:
        """The root of the data directory."""
        ...


@dataclass(frozen=True, slots=True)
class ControlPaths:
    """The files and folders of the control state."""

    root: Path
    """The data directory, absolute."""

    @classmethod
    def of(cls, data_dir: str | os.PathLike[str] | HasPath) -> Self:
        """Return the paths in ``data_dir``, a ``DataDir`` or a path."""
        path = data_dir.path if isinstance(data_dir, HasPath) else Path(data_dir)
        return cls(path.expanduser().absolute())

    @property
    def database(self) -> Path:
        """The SQLite file, unless a URL names another database."""
        return self.root / "control.db"

    @property
    def shared(self) -> Path:
        """The folder that all hosts share; without one the data directory."""
        return shared_dir(self.root)

    @property
    def models(self) -> Path:
        """``models/<name>/<version>/`` in the shared folder: Hugging Face folders."""
        return self.shared / "models"

    def job(self, job_id: str) -> Path:
        """Return the folder of a job in the shared folder, used by all its attempts on any host."""
        return self.shared / "jobs" / job_id

    def job_log(self, job_id: str) -> Path:
        """Return the log file that holds the output of all attempts of the job, in order."""
        return self.job(job_id) / "log.txt"
