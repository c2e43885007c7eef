"""The model registry: versions v1, v2, … of named models, each a complete Hugging Face folder.

The invariant: a version that can be seen is whole. Its folder is copied to a temporary name, fsynced and renamed before
its row is committed, and it never changes afterwards. A job registers at most one version, however often it is run.
"""

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

from pydantic import JsonValue, TypeAdapter
from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from spanloop.semconv.errors import ConfigurationError, JobError
from spanloop.training.control.atomic_copy import CopiedFolder, check_model_folder, copy_to_incoming, rename_into_place
from spanloop.training.control.clock import Clock, utc_now
from spanloop.training.control.database import ControlDatabase
from spanloop.training.control.leases import Lease, state_of
from spanloop.training.control.paths import ControlPaths, HasPath
from spanloop.training.control.tables import DeploymentRow, JobRow, ModelVersionRow
from spanloop.training.job_spec import NAME_PATTERN, is_reference

NO_METADATA: Mapping[str, JsonValue] = MappingProxyType({})
METADATA: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """One version of a model."""

    name: str
    version: str
    """``v1``, ``v2``, … in the order of registration."""
    path: Path
    """The Hugging Face folder, absolute. Read only."""
    parent: str | None
    """``name@version`` that it was trained from; None for a model that came from outside."""
    job_id: str | None
    """The job that made it; None for a model that came from outside."""
    created_at: datetime
    weights_sha256: str
    """Hash of the weight files: two versions with other weights have other hashes."""
    size_bytes: int
    """Of all files together."""
    metadata: Mapping[str, JsonValue]
    """What whoever registered it wanted to keep."""

    @property
    def reference(self) -> str:
        """``name@version``."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True)
class Deployment:
    """One deployment that the gateway confirmed."""

    reference: str
    """``name@version``."""
    deployed_at: datetime
    job_id: str | None
    """The job that deployed it; None when a person did."""


class Registry:
    """Model versions and deployments of one data directory.

    Args:
        data_dir: A ``DataDir`` or the path of one; it must exist.
        clock: Gives the present instant.

    Raises:
        ConfigurationError: ``SPANLOOP_CONTROL_URL`` cannot be used.
        DataDirectoryError: The control database is out of reach, or a newer spanloop wrote it.
    """

    def __init__(self, data_dir: str | os.PathLike[str] | HasPath, *, clock: Clock = utc_now) -> None:
        self._paths = ControlPaths.of(data_dir)
        self._database = ControlDatabase(self._paths)
        self._clock = clock

    def add(
        self,
        name: str,
        source_path: str | os.PathLike[str],
        *,
        parent: str | None = None,
        job_id: str | None = None,
        token: int | None = None,
        metadata: Mapping[str, JsonValue] = NO_METADATA,
    ) -> ModelVersion:
        """Copy a Hugging Face folder in as the next version of ``name``.

        With ``job_id`` it is idempotent: a job that has registered its version gets that one back.

        Args:
            name: The model.
            source_path: The folder to copy; links in it are followed.
            parent: ``name@version`` that it was trained from; must be registered.
            job_id: The job that made it.
            token: The fencing token of the process that runs the job; with it, a stale runner is refused.
            metadata: Anything JSON.

        Raises:
            ConfigurationError: The name is not one.
            JobError: The source is no model folder, or parent or job are unknown.
            LeaseLostError: ``token`` is stale.
            DataDirectoryError: The disk has no room.
        """
        if re.fullmatch(NAME_PATTERN, name) is None:
            raise ConfigurationError(f"{name!r} is no model name: expected {NAME_PATTERN}.")
        parent = None if parent is None else self.get(parent).reference
        with self._database.read() as session:
            done = _version_of_job(session, job_id, token)
        if done is not None:
            return self._value(done)
        check_model_folder(Path(source_path))
        temporary, facts = copy_to_incoming(Path(source_path), self._paths.models / name)
        try:
            with self._database.write() as session:
                # Asked again under the writer's lock: the copy took its time.
                row = _version_of_job(session, job_id, token)
                if row is None:
                    row = self._new_row(session, name, facts=facts, parent=parent, job_id=job_id, metadata=metadata)
                    rename_into_place(temporary, self._folder(row))
        finally:
            # Renamed away unless another attempt of the same job was faster, or the database refused.
            shutil.rmtree(temporary, ignore_errors=True)
        return self._value(row)

    def get(self, reference: str) -> ModelVersion:
        """The version ``name@version``, or the newest one of ``name``.

        Raises:
            ConfigurationError: ``reference`` is neither.
            JobError: There is no such version.
        """
        if not is_reference(reference):
            raise ConfigurationError(f"{reference!r} names no model version: expected name or name@v1.")
        name, _, version = reference.partition("@")
        statement = select(ModelVersionRow).where(ModelVersionRow.name == name)
        if version:
            statement = statement.where(ModelVersionRow.number == int(version[1:]))
        with self._database.read() as session:
            row = session.scalars(statement.order_by(ModelVersionRow.number.desc()).limit(1)).first()
        if row is None:
            raise JobError(
                f"There is no model version {reference!r}.",
                next_step="See which there are: spanloop models list; add one: spanloop models add NAME SOURCE",
            )
        return self._value(row)

    def list(self, name: str = "") -> tuple[ModelVersion, ...]:
        """All versions, or those of one model; newest first."""
        statement = select(ModelVersionRow).order_by(
            ModelVersionRow.created_at.desc(), ModelVersionRow.name, ModelVersionRow.number.desc()
        )
        if name:
            statement = statement.where(ModelVersionRow.name == name)
        with self._database.read() as session:
            return tuple(self._value(row) for row in session.scalars(statement))

    def lineage(self, reference: str) -> tuple[ModelVersion, ...]:
        """The version and what it was trained from, the first ancestor first.

        Raises:
            ConfigurationError: ``reference`` is no reference.
            JobError: There is no such version.
        """
        found = [self.get(reference)]
        # A version's parent was there before it, so this ends.
        while (parent := found[-1].parent) is not None:
            found.append(self.get(parent))
        return tuple(reversed(found))

    def check_lease(self, job_id: str | None, token: int | None) -> None:
        """Raise when ``token`` is given and is no longer the job's; a look only, nothing is held.

        Raises:
            LeaseLostError: The lease is another's by now.
        """
        with self._database.read() as session:
            _require_lease(session, job_id, token)

    def record_deployment(self, reference: str, *, job_id: str | None = None, token: int | None = None) -> Deployment:
        """Note that the gateway serves ``reference`` now; ``spanloop.training.deploy.deploy`` calls this.

        Raises:
            JobError: There is no such version.
            LeaseLostError: ``token`` is given and is stale.
        """
        model = self.get(reference)
        row = DeploymentRow(name=model.name, number=_number(model.version), deployed_at=self._clock(), job_id=job_id)
        with self._database.write() as session:
            _require_lease(session, job_id, token)
            session.add(row)
        return _deployment(row)

    def deployments(self, *, limit: int = 1000) -> tuple[Deployment, ...]:
        """The newest deployments, newest first."""
        statement = select(DeploymentRow).order_by(DeploymentRow.deployment_id.desc()).limit(limit)
        with self._database.read() as session:
            return tuple(_deployment(row) for row in session.scalars(statement))

    def deployed(self) -> ModelVersion | None:
        """The version that was deployed last; None before the first deployment."""
        newest = self.deployments(limit=1)
        return self.get(newest[0].reference) if newest else None

    def _new_row(
        self,
        session: Session,
        name: str,
        *,
        facts: CopiedFolder,
        parent: str | None,
        job_id: str | None,
        metadata: Mapping[str, JsonValue],
    ) -> ModelVersionRow:
        newest = session.scalar(select(func.max(ModelVersionRow.number)).where(ModelVersionRow.name == name))
        row = ModelVersionRow(
            name=name,
            number=(newest or 0) + 1,
            parent=parent or "",
            job_id=job_id,
            created_at=self._clock(),
            details=json.dumps(dict(metadata), sort_keys=True),
            weights_sha256=facts.weights_sha256,
            size_bytes=facts.size_bytes,
        )
        session.add(row)
        if job_id is not None:
            session.execute(update(JobRow).where(JobRow.job_id == job_id).values(model_version=f"{name}@v{row.number}"))
        session.flush()
        return row

    def _folder(self, row: ModelVersionRow) -> Path:
        return self._paths.models / row.name / f"v{row.number}"

    def _value(self, row: ModelVersionRow) -> ModelVersion:
        return ModelVersion(
            name=row.name,
            version=f"v{row.number}",
            path=self._folder(row),
            parent=row.parent or None,
            job_id=row.job_id,
            created_at=row.created_at,
            weights_sha256=row.weights_sha256,
            size_bytes=row.size_bytes,
            metadata=MappingProxyType(METADATA.validate_json(row.details)),
        )


def _version_of_job(session: Session, job_id: str | None, token: int | None) -> ModelVersionRow | None:
    if job_id is None:
        return None
    if session.get(JobRow, job_id) is None:
        raise JobError(f"There is no job {job_id!r} that could register a model version.")
    _require_lease(session, job_id, token)
    return session.scalars(select(ModelVersionRow).where(ModelVersionRow.job_id == job_id)).first()


def _require_lease(session: Session, job_id: str | None, token: int | None) -> None:
    if job_id is not None and token is not None:
        state_of(session, Lease(job_id, token))


def _deployment(row: DeploymentRow) -> Deployment:
    return Deployment(f"{row.name}@v{row.number}", row.deployed_at, row.job_id)


def _number(version: str) -> int:
    return int(version.removeprefix("v"))
