"""The model registry: versions v1, v2, … of named models, each a complete Hugging Face folder or a LoRA adapter.

Invariant: a visible version is complete. Its folder is copied to a temporary name, fsynced and renamed before its row
is committed, and never changes afterwards, until its weights are pruned, which its row says first. A job registers at
most one version, however often it is started.
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
from typing import Final

from pydantic import JsonValue, TypeAdapter
from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from spanloop.foundation.control.clock import Clock, utc_now
from spanloop.foundation.errors import ConfigurationError, JobError
from spanloop.foundation.version_names import NAME_PATTERN, is_exact, is_reference, is_version, number_of
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.tables import DeploymentRow, JobRow, ModelVersionRow
from spanloop.training.jobs.leases import JobLease, state_of
from spanloop.training.jobs.paths import ControlPaths, HasPath
from spanloop.training.jobs.training_ids import job_of, training_id
from spanloop.training.models.aliases import find_alias, no_such_alias
from spanloop.training.models.atomic_copy import CopiedFolder, check_model_folder, copy_to_incoming, rename_into_place
from spanloop.training.models.files.tokenizer_fingerprint import tokenizer_fingerprint
from spanloop.training.models.files.weights import has_output_layer
from spanloop.training.models.version_objects import VersionObjects

NO_METADATA: Mapping[str, JsonValue] = MappingProxyType({})
OBJECT: Final = "object"
"""Key of a version's metadata, see `ModelVersion.object_name`."""
SERVED_AS_IT_IS: Final = "served_as_it_is"
"""Key of the metadata of a version in object storage: an engine loads its weights without a copy."""
ADAPTER_BASE: Final = "adapter_base"
"""Key of a version's metadata, see `ModelVersion.adapter_base`."""
PRUNED_AT: Final = "pruned_at"
"""Key of a version's metadata: when its weights were removed."""
METADATA: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """One version of a model."""

    name: str
    version: str
    """``v1``, ``v2``, … in the order of registration."""
    path: Path
    """Absolute path of the Hugging Face folder. Read only. With ``object_name`` it exists only after a restore;
    `Registry.folder` returns the copy on this host."""
    parent: str | None
    """The ``name@version`` that it was trained from; None for an imported model."""
    job_id: str | None
    """The job that trained it; None for an imported model."""
    created_at: datetime
    weights_sha256: str
    """SHA-256 of the weight files: versions with different weights have different hashes."""
    size_bytes: int
    """Total size of all files."""
    metadata: Mapping[str, JsonValue]
    """Metadata that the caller registered."""
    training_id: str | None = None
    """The stage of that job, which its metrics and records are stored under; equal to ``job_id`` for the first one."""

    @property
    def adapter_base(self) -> str | None:
        """The ``name@version`` whose weights this LoRA adapter updates; None for a version with its own weights."""
        base = self.metadata.get(ADAPTER_BASE)
        return base if isinstance(base, str) else None

    @property
    def object_name(self) -> str | None:
        """Its name in object storage; None for a version that is a folder."""
        name = self.metadata.get(OBJECT)
        return name if isinstance(name, str) and not self.path.is_dir() else None

    @property
    def is_pruned(self) -> bool:
        """Whether its weights were removed; its tokenizer and its lineage stay."""
        return PRUNED_AT in self.metadata

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
    """The job that deployed it; None if the user did."""


class Registry:
    """The model versions and deployments of one data directory.

    Args:
        data_dir: The data directory, or its path; it must exist.
        clock: Returns the current time.

    Raises:
        ConfigurationError: ``SPANLOOP_CONTROL_URL`` cannot be used.
        DataDirectoryError: The control database is unreachable, or a newer spanloop wrote it.
    """

    def __init__(self, data_dir: str | os.PathLike[str] | HasPath, *, clock: Clock = utc_now) -> None:
        self._paths = ControlPaths.of(data_dir)
        self._database = ControlDatabase(self._paths)
        self._clock = clock
        self.objects: Final = VersionObjects(self._paths.root)
        """The versions in object storage, and their copies on this host."""

    def add(
        self,
        name: str,
        source_path: str | os.PathLike[str],
        *,
        parent: str | None = None,
        job_id: str | None = None,
        stage: int = 1,
        token: int | None = None,
        metadata: Mapping[str, JsonValue] = NO_METADATA,
    ) -> ModelVersion:
        """Copy a Hugging Face folder into the registry as the next version of ``name``.

        Idempotent with ``job_id``: if this stage of the job has registered a version, that version is returned.

        Args:
            name: The model name.
            source_path: The folder to copy; symbolic links are followed.
            parent: The registered ``name@version`` that it was trained from.
            job_id: The job that trained it.
            stage: Of the job, from 1.
            token: The fencing token of the runner; a stale token is rejected.
            metadata: JSON values to store with the version.

        Raises:
            ConfigurationError: The name is invalid.
            JobError: The source is not a model folder, or the parent or job does not exist.
            JobLeaseLostError: ``token`` is stale.
            DataDirectoryError: The disk is full.
        """
        if re.fullmatch(NAME_PATTERN, name) is None:
            raise ConfigurationError(f"{name!r} is not a model name: expected {NAME_PATTERN}.")
        parent = None if parent is None else self.get(parent).reference
        with self._database.read() as session:
            registered_row = _version_of_stage(session, job_id, stage, token)
        if registered_row is not None:
            return self._value(registered_row)
        check_model_folder(Path(source_path))
        temporary, copied = copy_to_incoming(Path(source_path), self._paths.models / name)
        try:
            stored = self.objects.store(name, temporary) if self.objects.is_configured else None
            if stored is not None:
                metadata = dict(metadata) | {OBJECT: stored.name, SERVED_AS_IT_IS: has_output_layer(temporary)}
            with self._database.write() as session:
                # Checked again under the write lock: another attempt may have registered during the copy.
                row = _version_of_stage(session, job_id, stage, token)
                if row is None:
                    training = training_id(job_id, stage) if job_id else None
                    row = self._new_row(
                        session, name, copied=copied, parent=parent, training=training, metadata=metadata
                    )
                    if stored is None:
                        rename_into_place(temporary, self._folder(row))
                    else:
                        self.objects.check(stored)  # under the lock, which `prune` takes, too
        finally:
            # Exists only if another attempt of the same job was faster, or the transaction failed.
            shutil.rmtree(temporary, ignore_errors=True)
        return self._value(row)

    def get(self, reference: str) -> ModelVersion:
        """Return the version ``name@version``, the one that ``name@alias`` names, or the newest version of ``name``.

        Raises:
            ConfigurationError: ``reference`` is invalid.
            JobError: There is no such version.
        """
        if not is_reference(reference):
            raise ConfigurationError(f"{reference!r} is not a model version: expected name, name@v1 or name@alias.")
        name, _, version = reference.partition("@")
        statement = select(ModelVersionRow).where(ModelVersionRow.name == name)
        with self._database.read() as session:
            if version and not is_version(version):
                alias = find_alias(session, name, version)
                if alias is None:
                    raise no_such_alias(session, name, version)
                version = alias.version
            if version:
                statement = statement.where(ModelVersionRow.number == number_of(version))
            row = session.scalars(statement.order_by(ModelVersionRow.number.desc()).limit(1)).first()
        if row is None:
            raise JobError(
                f"There is no model version {reference!r}.",
                next_step="See all versions: spanloop models list; add one: spanloop models add NAME SOURCE",
            )
        return self._value(row)

    def find(self, reference: str) -> ModelVersion | None:
        """Return the version that `get` returns; None where it raises."""
        try:
            return self.get(reference)
        except (ConfigurationError, JobError):
            return None

    def exact(self, reference: str) -> str:
        """Return the ``name@version`` that a reference means now; the empty one stays empty.

        Raises:
            JobError: There is no such alias.
        """
        return reference if not reference or is_exact(reference) else self.get(reference).reference

    def of_training(self, training: str) -> ModelVersion | None:
        """Return the version that a stage of a job registered (``training_ids``); None before that."""
        with self._database.read() as session:
            row = _version_of_training(session, training)
        return None if row is None else self._value(row)

    def list(self, name: str = "") -> tuple[ModelVersion, ...]:
        """Return all versions, or those of one model; newest first."""
        statement = select(ModelVersionRow).order_by(
            ModelVersionRow.created_at.desc(), ModelVersionRow.name, ModelVersionRow.number.desc()
        )
        if name:
            statement = statement.where(ModelVersionRow.name == name)
        with self._database.read() as session:
            return tuple(self._value(row) for row in session.scalars(statement))

    def lineage(self, reference: str) -> tuple[ModelVersion, ...]:
        """Return the version and its ancestors, the first ancestor first.

        Raises:
            ConfigurationError: ``reference`` is invalid.
            JobError: There is no such version.
        """
        versions = [self.get(reference)]
        # A version is registered after its parent, so this loop ends.
        while (parent := versions[-1].parent) is not None:
            versions.append(self.get(parent))
        return tuple(reversed(versions))

    def location(self, path: Path) -> str:
        """Return the path of a folder in the shared folder, relative to it; the path of another folder as it is."""
        shared = self._paths.shared
        return str(path.relative_to(shared) if path.is_relative_to(shared) else path)

    def tokenizer_fingerprint(self, reference: str) -> str | None:
        """Return the fingerprint of a version's tokenizer and chat template, which never change.

        None when ``reference`` is not the exact ``name@version`` of a registered version, or its files are unreadable.
        """
        version = self.find(reference) if "@" in reference else None
        try:
            return None if version is None else tokenizer_fingerprint(self.folder(version, weights=False))
        except JobError:
            return None

    def folder(self, version: ModelVersion, *, weights: bool = True) -> Path:
        """Return the folder of a version on this host, of an object a copy that stays as long as this registry.

        Without ``weights`` no large file is fetched. It raises as `VersionObjects.folder`.
        """
        name = version.object_name
        return version.path if name is None else self.objects.folder(name, weights=weights)

    def check_lease(self, job_id: str | None, token: int | None) -> None:
        """Check that ``token``, if given, is still the job's token; does not take a lock.

        Raises:
            JobLeaseLostError: Another runner holds the lease.
        """
        with self._database.read() as session:
            _require_lease(session, job_id, token)

    def record_deployment(self, reference: str, *, job_id: str | None = None, token: int | None = None) -> Deployment:
        """Record that the gateway serves ``reference``; called by ``spanloop.training.promotion.deploy.deploy``.

        Raises:
            JobError: There is no such version.
            JobLeaseLostError: ``token`` is stale.
        """
        model = self.get(reference)
        row = DeploymentRow(name=model.name, number=number_of(model.version), deployed_at=self._clock(), job_id=job_id)
        with self._database.write() as session:
            _require_lease(session, job_id, token)
            session.add(row)
        return _deployment(row)

    def deployments(self, *, name: str = "", limit: int = 1000) -> tuple[Deployment, ...]:
        """Return the deployments of a model, or of all models, newest first."""
        statement = select(DeploymentRow).order_by(DeploymentRow.deployment_id.desc()).limit(limit)
        if name:
            statement = statement.where(DeploymentRow.name == name)
        with self._database.read() as session:
            return tuple(_deployment(row) for row in session.scalars(statement))

    def deployed(self, name: str = "") -> ModelVersion | None:
        """Return the version of a model, or of any model, that was deployed last; None before the first deployment."""
        newest = self.deployments(name=name, limit=1)
        return self.get(newest[0].reference) if newest else None

    def require_weights(self, version: ModelVersion) -> None:
        """Check that a version was not pruned.

        Raises:
            JobError: It was.
        """
        if version.is_pruned:
            raise JobError(
                f"The weights of {version.reference} were pruned ({version.metadata[PRUNED_AT]}).",
                next_step="Restore its folder from a backup, or use another version: spanloop models list",
            )

    def mark_pruned(self, session: Session, version: ModelVersion) -> None:
        """Record in a write session that the version's weights are gone."""
        row = session.get_one(ModelVersionRow, (version.name, number_of(version.version)))
        row.details = json.dumps(dict(version.metadata) | {PRUNED_AT: self._clock().isoformat()}, sort_keys=True)

    def _new_row(
        self,
        session: Session,
        name: str,
        *,
        copied: CopiedFolder,
        parent: str | None,
        training: str | None,
        metadata: Mapping[str, JsonValue],
    ) -> ModelVersionRow:
        newest = session.scalar(select(func.max(ModelVersionRow.number)).where(ModelVersionRow.name == name))
        row = ModelVersionRow(
            name=name,
            number=(newest or 0) + 1,
            parent=parent or "",
            job_id=training,
            created_at=self._clock(),
            details=json.dumps(dict(metadata), sort_keys=True),
            weights_sha256=copied.weights_sha256,
            size_bytes=copied.size_bytes,
        )
        session.add(row)
        if training is not None:
            of_job = update(JobRow).where(JobRow.job_id == job_of(training))
            session.execute(of_job.values(model_version=f"{name}@v{row.number}"))
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
            job_id=None if row.job_id is None else job_of(row.job_id),
            training_id=row.job_id,
            created_at=row.created_at,
            weights_sha256=row.weights_sha256,
            size_bytes=row.size_bytes,
            metadata=MappingProxyType(METADATA.validate_json(row.details)),
        )


def _version_of_stage(session: Session, job_id: str | None, stage: int, token: int | None) -> ModelVersionRow | None:
    if job_id is None:
        return None
    if session.get(JobRow, job_id) is None:
        raise JobError(f"There is no job {job_id!r} that could register a model version.")
    _require_lease(session, job_id, token)
    return _version_of_training(session, training_id(job_id, stage))


def _version_of_training(session: Session, training: str) -> ModelVersionRow | None:
    return session.scalars(select(ModelVersionRow).where(ModelVersionRow.job_id == training)).first()


def _require_lease(session: Session, job_id: str | None, token: int | None) -> None:
    if job_id is not None and token is not None:
        state_of(session, JobLease(job_id, token))


def _deployment(row: DeploymentRow) -> Deployment:
    return Deployment(f"{row.name}@v{row.number}", row.deployed_at, row.job_id)
