"""Export a model version as a Hugging Face folder of its own, with its lineage in a model card.

Invariant: the folder appears complete or not at all; the version does not change. An adapter is exported in PEFT's
format, and its card names the version whose weights it needs.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from spanloop.evaluation.results import Evaluation
from spanloop.foundation.errors import ConfigurationError, JobError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.paths.checksums import CHECKSUMS_FILE

from ..dataset.manifest import read_manifest
from ..jobs.database.control_database import ControlDatabase
from ..jobs.entities import read_spec
from ..jobs.job_queue import find_job
from ..jobs.paths import ControlPaths
from ..models.atomic_copy import copy_to_incoming, rename_into_place
from ..models.registry import ModelVersion, Registry
from ..spec.stored_spec import parse_spec
from .decisions import Decisions
from .evidence import Decision

CARD_NAME: Final = "README.md"
FORMER_CARD_NAME: Final = "README.base.md"
"""The card that the version's folder had, such as that of the downloaded base."""
LINEAGE_NAME: Final = "spanloop_lineage.json"
"""The same facts for programs: a list of versions, the first ancestor first."""


def export_model(
    data_dir: DataDir, reference: str, folder: Path, *, evaluations: Sequence[Evaluation] = ()
) -> ModelVersion:
    """Copy a version into ``folder`` and write its model card; return the version.

    Args:
        data_dir: With the registry and the jobs' folders.
        reference: ``name@version`` or ``name@alias``, or ``name`` for the newest version.
        folder: Must not exist, or be empty.
        evaluations: Of the version, for the card.

    Raises:
        JobError: There is no such version, or it was pruned.
        ConfigurationError: The folder is in use.
        DataDirectoryError: The disk is full, or the folder cannot be written.
    """
    registry = Registry(data_dir)
    version = registry.get(reference)
    registry.require_weights(version)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder} is in use.", next_step="Name a folder that does not exist or is empty.")
    lineage = registry.lineage(version.reference)
    decisions = Decisions(data_dir).list(candidate=version.reference)
    target = folder.absolute()
    temporary, _ = copy_to_incoming(registry.folder(version), target.parent)
    (temporary / CHECKSUMS_FILE).unlink()  # other files are added, and the user may change all of them
    if (temporary / CARD_NAME).exists():
        (temporary / CARD_NAME).rename(temporary / FORMER_CARD_NAME)
    facts = [_facts(data_dir, each) for each in lineage]
    (temporary / LINEAGE_NAME).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    (temporary / CARD_NAME).write_text(_card(version, facts, evaluations, decisions), encoding="utf-8")
    rename_into_place(temporary, target)
    return version


def _facts(data_dir: DataDir, version: ModelVersion) -> dict[str, Any]:
    """Return what is known of how a version was made."""
    facts: dict[str, Any] = {
        "version": version.reference,
        "parent": version.parent,
        "created_at": version.created_at.isoformat(),
        "weights_sha256": version.weights_sha256,
        "metadata": dict(version.metadata),
    }
    if version.job_id is not None:
        facts["job"] = version.job_id
        facts["settings"] = _settings(data_dir, version.job_id)
    manifest = read_manifest(data_dir.jobs / version.training_id) if version.training_id else None
    if manifest is not None:
        facts["dataset"] = {
            "sha256": manifest.data_sha256,
            "episodes": manifest.episodes.accepted,
            "rows": manifest.rows.accepted,
            "mean_reward": manifest.mean_reward,
        }
    return facts


def _settings(data_dir: DataDir, job_id: str) -> dict[str, Any]:
    """Return the settings of a job that are not the default; none when the job is not stored any more."""
    with ControlDatabase(ControlPaths.of(data_dir)).read() as session:
        try:
            row = find_job(session, job_id)
        except JobError:
            return {}
        return read_spec(row, parse_spec).model_dump(mode="json", exclude_defaults=True)


def _card(
    version: ModelVersion,
    facts: Sequence[dict[str, Any]],
    evaluations: Sequence[Evaluation],
    decisions: Sequence[Decision],
) -> str:
    lines = [
        "---",
        _front_matter(version, evaluations),
        "---",
        "",
        f"# {version.reference}",
        "",
        f"A version that spanloop trained and exported. SHA-256 of its weights: `{version.weights_sha256}`.",
    ]
    if version.adapter_base is not None:
        lines += ["", f"It is a LoRA adapter in PEFT's format for the weights of {version.adapter_base}."]
    lines += [
        "",
        "## Lineage",
        "",
        *_table(("version", "trained from", "how", "learned from"), map(_lineage_row, facts)),
    ]
    if evaluations:
        head = ("evaluation", "tasks", "attempts", "success", "95 % interval", "reward", "95 % interval")
        lines += ["", "## Evaluations", "", *_table(head, map(_evaluation_row, evaluations))]
    if decisions:
        titles = ("decided at (UTC)", "against", "verdict", "why")
        lines += ["", "## Decisions", "", *_table(titles, map(_decision_row, decisions))]
    return "\n".join([*lines, "", f"`{LINEAGE_NAME}` has the settings of each training.", ""])


def _front_matter(version: ModelVersion, evaluations: Sequence[Evaluation]) -> str:
    from huggingface_hub import EvalResult, ModelCardData  # noqa: PLC0415 - half a second

    results = [
        EvalResult(
            task_type="text-generation",
            dataset_type="spanloop",
            dataset_name=each.name,
            metric_type=metric,
            metric_value=round(value, 4),
        )
        for each in evaluations
        for metric, value in (("success", each.success.value), ("reward", each.reward.value))
    ]
    library = "peft" if version.adapter_base else "transformers"
    card = ModelCardData(
        model_name=version.reference,
        library_name=library,
        tags=["spanloop", "reinforcement-learning"],
        eval_results=results or None,
    )
    return str(card.to_yaml())  # pyright: ignore[reportUnknownMemberType] - an argument is not annotated


def _lineage_row(facts: dict[str, Any]) -> tuple[str, ...]:
    metadata, dataset = facts["metadata"], facts.get("dataset")
    how = f"{metadata['kind']}, {metadata['steps']} steps" if {"kind", "steps"} <= metadata.keys() else "added"
    learned = f"{dataset['episodes']:,} episodes, dataset `{dataset['sha256'][:12]}`" if dataset else ""
    return facts["version"], facts["parent"] or "", how, learned


def _evaluation_row(evaluation: Evaluation) -> tuple[str, ...]:
    success, reward = evaluation.success, evaluation.reward
    return (
        evaluation.name,
        f"{evaluation.tasks:,}",
        f"{evaluation.episodes:,}",
        f"{success.value:.1%}",
        success.range_text(".1%"),
        f"{reward.value:.3f}",
        reward.range_text(".3f"),
    )


def _decision_row(decision: Decision) -> tuple[str, ...]:
    champion = decision.champion or "none"
    return f"{decision.decided_at:%Y-%m-%d %H:%M}", champion, decision.outcome.value, decision.evidence.reason


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"
