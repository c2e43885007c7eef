"""The registry in the control database of a backup."""

from pathlib import Path

from sqlalchemy import select

from ..jobs.database.control_database import ControlDatabase
from ..jobs.database.tables import ModelVersionRow
from ..jobs.paths import ControlPaths
from .atomic_copy import has_weights
from .registry import METADATA, PRUNED_AT


def find_lost_versions(file: Path, models: Path) -> list[str]:
    """Return the versions that were not pruned and whose weights are not in a folder of models.

    Args:
        file: A control database, SQLite; an older schema is migrated.
        models: The folder, with ``name/v1``.

    Raises:
        DataDirectoryError: The file is of a newer spanloop, or its schema is too old.
    """
    with ControlDatabase(ControlPaths(file.parent), url=f"sqlite:///{file}").read() as session:
        rows = session.scalars(select(ModelVersionRow).order_by(ModelVersionRow.name, ModelVersionRow.number)).all()
    kept = [row for row in rows if PRUNED_AT not in METADATA.validate_json(row.details)]
    return [f"{row.name}@v{row.number}" for row in kept if not has_weights(models / row.name / f"v{row.number}")]
