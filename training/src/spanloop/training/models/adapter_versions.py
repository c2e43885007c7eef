"""Versions that are LoRA adapters: the weights that they stand for, and the adapter that a job keeps.

Invariant: an adapter version names the version with the weights that it updates, and that one has weights of its own. A
job that starts from an adapter trains on merged weights; the adapter that it keeps includes the one it started from.
"""

import shutil
from pathlib import Path

from spanloop.foundation.errors import JobError

from ..spec.defaults import MAX_ADAPTER_RANK
from ..spec.job_spec import JobSpec
from .checkpoints import KeptAdapter
from .files.lora_adapter import adapter_rank, read_adapter
from .files.lora_merge import merge_into_base
from .registry import ModelVersion, Registry


def weights_version(registry: Registry, version: ModelVersion) -> ModelVersion:
    """Return the version that has the weights: the base of an adapter, else ``version``.

    Raises:
        JobError: The base is gone, or one of both was pruned.
    """
    registry.require_weights(version)
    owner = version if version.adapter_base is None else registry.get(version.adapter_base)
    registry.require_weights(owner)
    if owner.object_name is None and not owner.path.is_dir():
        raise JobError(
            f"{version.reference} needs the weights of {owner.reference}; their folder does not exist: {owner.path}.",
            next_step="Restore it from a backup, or use another version: spanloop models list",
        )
    return owner


def full_weights(registry: Registry, version: ModelVersion, scratch: Path) -> Path:
    """Return a folder with the weights that ``version`` stands for: its own, or for an adapter a merged copy.

    Args:
        registry: Where ``version`` is registered.
        version: Any version.
        scratch: The merged copy; it appears complete or not at all, and is used again when it exists.

    Raises:
        JobError: The base of the adapter is gone, or is another model.
    """
    owner = weights_version(registry, version)
    if owner is version:
        return registry.folder(version)
    if not scratch.exists():
        incoming = scratch.with_name(f".{scratch.name}.incoming")
        shutil.rmtree(incoming, ignore_errors=True)
        incoming.mkdir(parents=True)
        merge_into_base(read_adapter(registry.folder(version)), registry.folder(owner), incoming)
        incoming.rename(scratch)
    return scratch


def adapter_to_keep(registry: Registry, spec: JobSpec, reference: str) -> KeptAdapter | None:
    """Return what the adapter of a job belongs to that starts from ``reference``; None when it is merged.

    Raises:
        JobError: Together with the adapter that the job starts from its rank is more than vLLM serves.
    """
    if spec.optimiser.lora_merge:
        return None
    version = registry.get(reference)
    if version.adapter_base is None:
        return KeptAdapter(version.reference)
    folder = registry.folder(version)
    rank = adapter_rank(folder)
    added = spec.optimiser.lora_rank
    if rank + added > MAX_ADAPTER_RANK:
        raise JobError(
            f"{version.reference} is an adapter of rank {rank}. With lora_rank {added} the new one would have "
            f"rank {rank + added}; vLLM serves up to {MAX_ADAPTER_RANK}.",
            next_step="Submit it again with a lower lora_rank, or with lora_merge = true.",
        )
    return KeptAdapter(version.adapter_base, merged=folder)
