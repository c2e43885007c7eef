"""Free the disk space of versions that nothing needs any more.

Invariant: what an alias names, what is served and what ``champion`` can be rolled back to stays, with its ancestors; so
do bases of open jobs and schedules and the newest versions of each model. A pruned version loses its weights only: its
row, its tokenizer and its lineage stay, so that episodes of it can be read and trained on, and its number is not used
again. Its row says so before the first file goes, so a kill in between leaves no version that looks whole.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from spanloop.foundation.control.clock import Clock, utc_now
from spanloop.foundation.version_names import number_of
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.tables import JobRow, ScheduleRow
from spanloop.training.jobs.entities import read_spec, skip_unreadable
from spanloop.training.jobs.paths import ControlPaths, HasPath
from spanloop.training.jobs.state_machine import FINAL_STATES
from spanloop.training.models.aliases import list_aliases
from spanloop.training.models.atomic_copy import WEIGHT_PATTERNS
from spanloop.training.models.registry import ModelVersion, Registry
from spanloop.training.spec.stored_spec import parse_spec

DEFAULT_KEEP: Final = 3


class PrunedVersion(NamedTuple):
    """A version and what becomes of it."""

    version: ModelVersion
    kept_because: str
    """Why it stays; empty when its weights go."""
    size_bytes: int
    """Of the files that go."""


def plan_prune(
    data_dir: str | os.PathLike[str] | HasPath, *, keep: int = DEFAULT_KEEP, name: str = ""
) -> list[PrunedVersion]:
    """Return every version that has weights, and whether it would lose them; changes nothing.

    Args:
        data_dir: The data directory, or its path.
        keep: The newest versions of each model that stay; at least 1.
        name: Only this model; empty for all.
    """
    database, registry = ControlDatabase(ControlPaths.of(data_dir)), Registry(data_dir)
    with database.read() as session:
        return _plan(session, registry, keep=keep, name=name)


def prune(
    data_dir: str | os.PathLike[str] | HasPath,
    *,
    keep: int = DEFAULT_KEEP,
    name: str = "",
    clock: Clock = utc_now,
) -> list[PrunedVersion]:
    """Remove the weights of versions that nothing needs; return what `plan_prune` returned before.

    Raises:
        DataDirectoryError: The control database is unreachable.
        OSError: A file cannot be removed; the next call goes on.
    """
    database, registry = ControlDatabase(ControlPaths.of(data_dir)), Registry(data_dir, clock=clock)
    with database.write() as session:
        plan = _plan(session, registry, keep=keep, name=name)
        for each in plan:
            if not each.kept_because:
                registry.mark_pruned(session, each.version)
    versions = registry.list(name)
    for version in versions:
        if version.is_pruned:
            for path in _removable(version):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for object_name in {version.object_name for version in versions if version.is_pruned and version.object_name}:
        # Under the lock, because a version with the same files may be registered meanwhile.
        with database.write():
            if all(version.is_pruned for version in registry.list() if version.object_name == object_name):
                registry.objects.prune(object_name)
    return plan


def _plan(session: Session, registry: Registry, *, keep: int, name: str) -> list[PrunedVersion]:
    if keep < 1:
        raise ValueError(f"keep {keep}: expected at least 1, the newest version, whose number must not be used again")
    versions = registry.list()
    reasons = _reasons(session, registry, {version.reference: version for version in versions}, keep)
    return [
        PrunedVersion(version, reason, 0 if reason else _removable_bytes(registry, version))
        for version in versions
        if not version.is_pruned and name in {"", version.name}
        for reason in [reasons.get(version.reference, "")]
    ]


def _reasons(session: Session, registry: Registry, versions: Mapping[str, ModelVersion], keep: int) -> dict[str, str]:
    """Return why versions stay, by their reference."""
    live = _live(session, registry)
    reasons = dict(live)
    for reference in live:
        for ancestor in _ancestors(versions, reference):
            reasons.setdefault(ancestor, f"ancestor of {reference}")
    for model in {version.name for version in versions.values()}:
        newest = sorted((each for each in versions.values() if each.name == model), key=lambda v: number_of(v.version))
        for version in newest[-keep:]:
            reasons.setdefault(version.reference, f"among the newest {keep}")
    for reference in list(reasons):
        base = versions[reference].adapter_base if reference in versions else None
        if base is not None:
            reasons.setdefault(base, f"weights of the adapter {reference}")
    return reasons


def _live(session: Session, registry: Registry) -> dict[str, str]:
    """Return the versions that something names, and what does."""
    live: dict[str, str] = {}
    for alias in list_aliases(session):
        live[alias.reference] = f"alias {alias.alias}"
        if alias.rolls_back_to:
            live.setdefault(alias.rolls_back_to, f"{alias.alias} can be rolled back to it")
    for name in {version.name for version in registry.list()}:
        if deployed := registry.deployments(name=name, limit=1):
            live[deployed[0].reference] = "deployed last"
    for owner, base in _bases(session):
        version = registry.find(base)
        if version is not None:
            live.setdefault(version.reference, f"base of {owner}")
    return live


def _bases(session: Session) -> list[tuple[str, str]]:
    """Return the open jobs and the schedules with the references of their bases."""
    open_jobs = select(JobRow).where(JobRow.state.not_in([str(state) for state in FINAL_STATES]))
    jobs = skip_unreadable(session.scalars(open_jobs), lambda row: (row.job_id, read_spec(row, parse_spec).base))
    schedules = session.scalars(select(ScheduleRow))
    return [*jobs, *skip_unreadable(schedules, lambda row: (row.schedule_id, read_spec(row, parse_spec).base))]


def _ancestors(versions: Mapping[str, ModelVersion], reference: str) -> Iterator[str]:
    parent = versions[reference].parent if reference in versions else None
    while parent is not None and parent in versions:
        yield parent
        parent = versions[parent].parent


def _removable(version: ModelVersion) -> list[Path]:
    weights = [path for pattern in WEIGHT_PATTERNS for path in version.path.glob(pattern)]
    serving = version.path.with_name(f"{version.path.name}.serving")
    return [*weights, *([serving] if serving.is_dir() else [])]


def _removable_bytes(registry: Registry, version: ModelVersion) -> int:
    if version.object_name is not None:
        return registry.objects.prunable_bytes(version.object_name)
    return sum(map(_size, _removable(version)))


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
