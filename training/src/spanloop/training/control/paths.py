"""Where control state lies below the data directory; nothing here touches the disk."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, runtime_checkable


@runtime_checkable
class HasPath(Protocol):
    """What ``spanloop.store.DataDir`` offers to a part that needs only its root."""

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
        """The paths below ``data_dir``, which may be a ``DataDir`` or a plain path."""
        path = data_dir.path if isinstance(data_dir, HasPath) else Path(data_dir)
        return cls(path.expanduser().absolute())

    @property
    def database(self) -> Path:
        """The SQLite file, unless a URL names another database."""
        return self.root / "control.db"

    @property
    def models(self) -> Path:
        """``models/<name>/<version>/``: Hugging Face folders."""
        return self.root / "models"

    def job(self, job_id: str) -> Path:
        """The scratch folder of one job, the same for all its attempts."""
        return self.root / "jobs" / job_id

    def job_log(self, job_id: str) -> Path:
        """What all attempts of the job printed, in order."""
        return self.job(job_id) / "log.txt"

    def job_spec(self, job_id: str) -> Path:
        """The spec as JSON, written when the job starts; for people, the database is what counts."""
        return self.job(job_id) / "spec.json"
