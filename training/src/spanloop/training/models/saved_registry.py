"""The registry in the control database of a backup."""

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import select

from spanloop.foundation.objects import object_storage

from ..jobs.database.control_database import ControlDatabase
from ..jobs.database.tables import ModelVersionRow
from ..jobs.paths import ControlPaths
from .atomic_copy import has_weights
from .registry import METADATA, OBJECT, PRUNED_AT


def find_lost_versions(file: Path, models: Path) -> list[str]:
    """Return the versions that were not pruned and whose weights are not in a folder of models.

    Args:
        file: A control database, SQLite; an older schema is migrated.
        models: The folder, with ``name/v1``.

    Raises:
        DataDirectoryError: The file is of a newer spanloop, or its schema is too old.
    """
    kept = [row for row in _rows(file) if PRUNED_AT not in METADATA.validate_json(row.details)]
    return [f"{row.name}@v{row.number}" for row in kept if not has_weights(models / row.name / f"v{row.number}")]


def fetch_version_objects(root: Path, file: Path, models: Path) -> None:
    """Fetch the versions that are in object storage into a folder of models, as ``name/v1``, unless it has them.

    Args:
        root: The data directory.
        file: A control database, SQLite.
        models: The folder.

    Raises:
        ObjectStorageError: A version cannot be fetched. One that is not in the storage is left out.
    """
    storage = object_storage(root)
    for row in _rows(file) if storage is not None else ():
        name = METADATA.validate_json(row.details).get(OBJECT)
        target = models / row.name / f"v{row.number}"
        if storage is None or not isinstance(name, str) or target.exists():
            continue
        manifest = storage.store.find(name)
        if manifest is not None:
            storage.store.fetch(manifest, target)


def _rows(file: Path) -> Sequence[ModelVersionRow]:
    with ControlDatabase(ControlPaths(file.parent), url=f"sqlite:///{file}").read() as session:
        return session.scalars(select(ModelVersionRow).order_by(ModelVersionRow.name, ModelVersionRow.number)).all()
