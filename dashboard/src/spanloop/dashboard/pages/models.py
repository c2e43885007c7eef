"""Show model versions, their lineage and the served one, with a button to serve another; ``?model=…`` opens one."""
# pyright: reportUnknownMemberType=false

import json
from collections.abc import Mapping, Sequence
from typing import ClassVar

import polars as pl
import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import actions, tables
from spanloop.dashboard.components.actions import Action
from spanloop.dashboard.components.job_form.evaluate import evaluate_button
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import (
    draw_again,
    empty_state,
    linked_page,
    page,
    show_error,
    show_not_running,
)
from spanloop.dashboard.components.promotion import canary, controls, decisions
from spanloop.dashboard.components.record_list import address
from spanloop.dashboard.components.tables import Column
from spanloop.dashboard.page import Page, PageContext
from spanloop.dashboard.queries import policy_versions, training_jobs
from spanloop.dashboard.view_models.formatting import DASH, ago, count, number, percent, share
from spanloop.dashboard.view_models.jobs import dataset_facts, run_duration, stage_settings
from spanloop.dashboard.view_models.lineage import LineageLine, VersionNotes, lineage_graph, order_lineage
from spanloop.evaluation.results import Interval, load_evaluations
from spanloop.foundation.errors import SpanloopError
from spanloop.store import Store
from spanloop.training.dataset.manifest import Manifest
from spanloop.training.models.lineage import spans_of_version
from spanloop.training.models.registry import ModelVersion
from spanloop.training.promotion.aliases import Aliases
from spanloop.training.promotion.decisions import Decisions
from spanloop.training.promotion.deploy import deploy
from spanloop.training.run.job_api import Job

_MAX_GRAPH_NODES = 20
_MAX_EVALUATIONS = 3
_MAX_SPANS = 200
_MAX_DECISIONS = 10
_MAX_SHOWN_DECISIONS = 50
_CURVES = frozenset({"final_metrics"})
_REPEATED = _CURVES | {"kind", "steps", "dataset_sha256", "mean_reward", "episodes"}
"""Metadata of a version that its job and its manifest state too."""


class ModelsPage(Page):
    """Model versions, their lineage and what is served."""

    title: ClassVar[str] = "Models"
    icon: ClassVar[str] = ":material/deployed_code:"

    def show(self, context: PageContext) -> None:
        """Draw the versions, and details of the one that the URL names."""
        with page(
            "Models",
            "Every version is a complete model folder. Children stand under the version they were trained from.",
        ):
            registry = context.registry()
            models = registry.list()
            if not models:
                empty_state(
                    "No model is registered yet.",
                    "Register a Hugging Face folder:",
                    resources.cli_command("models add NAME FOLDER"),
                )
                return
            deployed = registry.deployed()
            serving = deployed.reference if deployed and resources.data_dir().find("gateway") else ""
            _serving_state(deployed, serving)
            canary.show()
            lines = order_lineage(models)
            aliases = _aliases()
            _lineage_graph(lines, serving)
            _champions(sorted({model.name for model in models}))
            selected = st.query_params.get("model", "")
            tables.show(
                tables.to_frame([_row(line.label, line.model, serving, aliases) for line in lines]),
                _columns(),
                [address("models", model=line.model.reference) for line in lines],
                key="models",
                current=address("models", model=selected) if selected else "",
            )
            if selected:
                _version(registry.get(selected), serving)
            else:
                st.caption(
                    "Click a row to see a version and to serve it."
                    if actions.may_act()
                    else "Click a row to see a version."
                )


def _lineage_graph(lines: list[LineageLine], serving: str) -> None:
    newest = {
        line.model.reference for line in sorted(lines, key=lambda line: line.model.created_at)[-_MAX_GRAPH_NODES:]
    }
    graph_lines = [line for line in lines if line.model.reference in newest]
    try:
        results = _results(resources.store())
    except SpanloopError:
        # Without ClickHouse the graph is drawn without results.
        results = {}
    notes = {
        line.model.reference: VersionNotes(results.get(line.model.reference, ()), _job_notes(line.model))
        for line in graph_lines
    }
    selected = st.query_params.get("model", "")
    is_dark = st.context.theme.type == "dark"
    graph = lineage_graph(graph_lines, notes, served=serving, selected=selected, is_dark=is_dark)
    st.graphviz_chart(graph, width="content")
    if len(graph_lines) < len(lines):
        st.caption(f"The graph shows the {_MAX_GRAPH_NODES} newest versions.")


def _champions(names: Sequence[str]) -> None:
    decided = Decisions(resources.data_dir())
    for name in names:
        decisions.show_champion(name, decided.list(name, limit=_MAX_SHOWN_DECISIONS))


def _results(store: Store) -> dict[str, tuple[str, ...]]:
    """Return the results of each version in lines: over all its episodes, and of each evaluation."""
    lines: dict[str, list[str]] = {}
    for row in policy_versions.fetch_versions(store, 0).iter_rows(named=True):
        lines[row["policy_version"]] = [f"{row['episodes']:,} episodes, mean reward {number(row['mean_reward'])}"]
    for evaluation in load_evaluations(store):
        success = evaluation.success
        lines.setdefault(evaluation.model, []).append(
            f"{evaluation.name}: {share(success.value)} success ({_range(success)})"
        )
    return {reference: tuple(texts) for reference, texts in lines.items()}


def _range(success: Interval) -> str:
    return success.range_text(".1f", scale=100, unit=" %")


def _job_notes(model: ModelVersion) -> tuple[str, ...]:
    """Return notes on the job that made a version, in lines."""
    job = training_jobs.find_source_job(model.job_id)
    if job is None:
        return (model.job_id,) if model.job_id else ()
    manifest = training_jobs.find_manifest(model.training_id or job.id)
    dataset = (f"{manifest.episodes.accepted:,} episodes",) if manifest else ()
    name = stage_settings(job, model.training_id or job.id).recipe.title
    return (f"{name}, {_steps(model, job)}", *dataset)


def _steps(model: ModelVersion, job: Job) -> str:
    """Return the number of steps that made a version; versions from before they were recorded have the job's."""
    steps = model.metadata.get("steps", job.steps_total)
    return "1 step" if steps == 1 else f"{steps} steps"


def _serving_state(deployed: ModelVersion | None, serving: str) -> None:
    if serving:
        st.markdown(f":green[●] The gateway serves **{escape_md(serving)}**.")
        return
    last_served = f" The last one served was **{escape_md(deployed.reference)}**." if deployed else ""
    if resources.data_dir().find("gateway"):
        st.warning(f"Nothing is served yet.{last_served}", icon=":material/cloud_off:")
        return
    show_not_running(
        f"Nothing is served: the gateway does not run.{last_served}",
        "Start everything with",
        resources.cli_command("up"),
        icon=":material/cloud_off:",
    )


def _aliases() -> dict[str, str]:
    """Return the aliases of each version that has some."""
    names: dict[str, list[str]] = {}
    for alias in Aliases(resources.data_dir()).list():
        names.setdefault(alias.reference, []).append(alias.alias)
    return {reference: ", ".join(aliases) for reference, aliases in names.items()}


def _row(label: str, model: ModelVersion, serving: str, aliases: Mapping[str, str]) -> dict[str, object]:
    return {
        "version": label,
        "aliases": aliases.get(model.reference, ""),
        "served": "● served" if model.reference == serving else "pruned" if model.is_pruned else "",
        "created_at": model.created_at,
        "made_by": model.job_id or "added from outside",
        "size": f"{model.size_bytes / 1e6:,.1f} MB",
        "weights": model.weights_sha256[:12],
    }


def _columns() -> tables.Columns:
    return {
        "version": tables.text_column("version", width=220),
        "aliases": tables.text_column("aliases", help="Names that stand for a version: NAME@champion", width=110),
        "served": tables.text_column("served", width=85),
        "created_at": tables.time_column("created"),
        "made_by": tables.text_column("made by job"),
        "size": tables.text_column("size", width=100),
        "weights": tables.text_column("weights", help="Start of the SHA-256 of the weight files", width=120),
    }


def _version(model: ModelVersion, serving: str) -> None:
    st.subheader(escape_md(model.reference), anchor=False)
    _episodes(model)
    with st.container(horizontal=True, vertical_alignment="center"):
        _deploy_button(model, serving)
        if not model.is_pruned:
            evaluate_button(version=model.reference)
        st.page_link(
            linked_page("episodes"),
            label="Its episodes",
            icon=":material/forum:",
            query_params={"policy": model.reference},
        )
        if model.job_id:
            st.page_link(
                linked_page("jobs"),
                label="Its job",
                icon=":material/model_training:",
                query_params={"job": model.job_id},
            )
            st.page_link(
                linked_page("evaluations"),
                label="Its training curves",
                icon=":material/trending_up:",
                query_params={"view": "Training", "job": model.training_id or model.job_id},
            )
        if model.parent:
            st.page_link(
                linked_page("evaluations"),
                label="Before and after",
                icon=":material/compare_arrows:",
                query_params={"view": "Task by task", "before": model.parent, "after": model.reference},
            )
    controls.show(model)
    decisions.show(Decisions(resources.data_dir()).list(candidate=model.reference, limit=_MAX_DECISIONS))
    _facts(model)
    _trained_by(model)


def _facts(model: ModelVersion) -> None:
    """Draw how a version was made, folded: what it can be used for comes first."""
    job = training_jobs.find_source_job(model.job_id)
    manifest = training_jobs.find_manifest(model.training_id) if job and model.training_id else None
    made = [*_job_notes(model), f"from {model.parent}"] if model.parent else ["added from outside"]
    with st.expander(f"How it was made: {escape_md(', '.join(made))}", icon=":material/history:"):
        _show_facts(model, job, manifest)


def _show_facts(model: ModelVersion, job: Job | None, manifest: Manifest | None) -> None:
    tables.show_facts(
        {"trained from": model.parent or DASH, "made by job": model.job_id or DASH}
        | (_training(model, job) if job else {})
        | (dataset_facts(manifest) if manifest else {})
        | {
            "created": f"{model.created_at:%Y-%m-%d %H:%M:%S} UTC ({ago(model.created_at, resources.now())})",
            "folder": model.object_name or str(model.path),
            "weights SHA-256": model.weights_sha256,
        }
        | {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in model.metadata.items()
            if value != "" and name not in (_REPEATED if manifest else _CURVES)
        }
    )


def _trained_by(model: ModelVersion) -> None:
    """Draw the model calls that trained a version and its ancestors, those trained on most often first."""
    try:
        spans = spans_of_version(resources.store(), resources.registry(), model.reference, max_rows=_MAX_SPANS)
    except SpanloopError as error:
        show_error(error)
        return
    if spans.is_empty():
        return
    st.markdown("**What trained it**")
    rows = [
        {
            "version": row["version"],
            "trace": tables.link_cell(row["trace_id"], address("traces", trace=row["trace_id"])),
            "episode": tables.link_cell(
                row["episode_id"],
                address("episodes", episode=row["episode_id"], view="Transitions", step=f"{row['episode_step']}"),
            ),
            "step": row["episode_step"],
            "times": row["times"],
            "first": row["first_step"],
            "last": row["last_step"],
            "advantage": row["advantage"],
        }
        for row in spans.iter_rows(named=True)
    ]
    tables.show_rows(
        rows,
        {
            "trace": Column("trace", "id"),
            "episode": Column("episode", "id"),
            "step": Column("its step", "number", width=70),
            "version": Column("by the job of", width=120),
            "times": Column("times trained", "number", width=100),
            "first": Column("first at", "number", width=80),
            "last": Column("last at", "number", "Step of the training job", 80),
            "advantage": Column("mean advantage", "number", width=120, form="+.3f"),
        },
        key="trained_by",
    )
    st.caption(f"{spans.height:,} of {int(spans['spans'][0]):,} model calls")


def _training(model: ModelVersion, job: Job) -> dict[str, str]:
    spec = stage_settings(job, model.training_id or job.id)
    return {
        "how": f"{spec.recipe.title}, {_steps(model, job)} of {spec.optimiser.batch_groups} "
        f"{spec.recipe.batch_unit}, learning rate {spec.optimiser.learning_rate:.1e}",
        "training took": run_duration(job, resources.now()),
    }


def _episodes(model: ModelVersion) -> None:
    try:
        store = resources.store()
        versions = policy_versions.fetch_versions(store, 0).filter(pl.col("policy_version") == model.reference)
        evaluations = load_evaluations(store, model=model.reference)[:_MAX_EVALUATIONS]
    except SpanloopError as error:
        show_error(error)
        return
    if versions.is_empty():
        st.caption("It has no episode yet.")
        return
    row = versions.row(0, named=True)
    columns = st.columns(3 + len(evaluations))
    columns[0].metric("Episodes", count(row["episodes"]))
    columns[1].metric("Success rate", percent(row["successes"], row["successes"] + row["failures"]))
    columns[2].metric("Mean reward", number(row["mean_reward"]))
    for column, evaluation in zip(columns[3:], evaluations, strict=True):
        success = evaluation.success
        column.metric(
            f"Evaluation {escape_md(evaluation.name)}",
            share(success.value),
            help=f"{_range(success)} over {evaluation.tasks:,} tasks",
        )


def _deploy_button(model: ModelVersion, serving: str) -> None:
    is_served = model.reference == serving
    is_up = resources.data_dir().find("gateway") is not None
    reason = "It is served already." if is_served else "" if is_up else "The gateway does not run."
    reason = "Its weights were pruned." if model.is_pruned else reason
    if actions.button(
        "Serve this version",
        icon=":material/rocket_launch:",
        key="deploy",
        is_disabled=bool(reason),
        hint=reason or None,
    ):
        with st.spinner(f"The gateway loads {escape_md(model.reference)}; requests wait until then…"):
            actions.act(Action.DEPLOY_MODEL, model.reference, lambda: deploy(resources.data_dir(), model.reference))
        draw_again()
