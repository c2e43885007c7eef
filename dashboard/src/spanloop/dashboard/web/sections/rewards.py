"""Does it learn? Training curves by step, and what the episodes of each policy version earned."""
# pyright: reportUnknownMemberType=false

import polars as pl
import streamlit as st
from streamlit.column_config import NumberColumn, TextColumn

from spanloop.dashboard import charts, reads, resources, tables
from spanloop.dashboard.page import nothing_yet, page
from spanloop.dashboard.views.series import choose_metrics
from spanloop.store import Store


def render() -> None:
    """Draw the page."""
    with page("Rewards"):
        store = resources.store()
        st.subheader("While training", anchor=False)
        _training(store)
        st.subheader("In episodes, by policy version", anchor=False)
        _episodes(store)


def _training(store: Store) -> None:
    jobs = reads.metric_jobs(store)
    if jobs.is_empty():
        nothing_yet("No training metric yet.", "A job writes them at every step:", resources.command("train NAME"))
        return
    ids: list[str] = jobs["job_id"].to_list()
    labels = _job_labels(ids)
    asked = st.query_params.get("job", "")
    default = [asked] if asked in labels else ids[:1]
    chosen: list[str] = st.multiselect("Jobs", ids, default=default, format_func=lambda job_id: labels[job_id])
    if not chosen:
        st.caption("Choose a job.")
        return
    names = reads.metric_names(store, chosen)
    choice = choose_metrics(names)
    if choice.reward:
        _curve(store, chosen, labels, choice.reward, is_tall=True)
    else:
        st.caption("These jobs recorded no reward: supervised training has none.")
    others: list[str] = st.multiselect(
        "Other metrics", [name for name in names if name != choice.reward], default=list(choice.others)
    )
    columns = st.columns(2)
    for index, name in enumerate(others):
        with columns[index % 2]:
            _curve(store, chosen, labels, name)


def _curve(store: Store, job_ids: list[str], labels: dict[str, str], name: str, *, is_tall: bool = False) -> None:
    frame = reads.metrics(store, job_ids, [name])
    shown = frame.select(pl.col("job_id").replace(labels).alias("job"), "step", "value").filter(
        pl.col("value").is_finite()
    )
    if shown.is_empty():
        st.caption(f"{name}: no finite value.")
        return
    st.altair_chart(charts.metric_by_step(shown, name, is_tall=is_tall))


def _job_labels(ids: list[str]) -> dict[str, str]:
    """What a person calls a job: its kind, base and id; only the id when the control database has forgotten it."""
    known = {job.id: job for job in resources.job_api().list()}
    return {
        job_id: f"{known[job_id].spec.kind} {known[job_id].spec.base} → {known[job_id].model_version or '…'} ({job_id})"
        if job_id in known
        else job_id
        for job_id in ids
    }


def _episodes(store: Store) -> None:
    versions = reads.policy_versions(store, 0)
    if versions.is_empty() or not int(versions["rewarded"].sum()):
        nothing_yet(
            "No episode has a reward yet.",
            "Send one from your app with spanloop.instrumentation.reward(1.0), then convert:",
            resources.command("convert"),
        )
        return
    st.altair_chart(charts.reward_by_version(versions))
    st.caption("Dot: mean reward. Line: one standard error of the mean to either side.")
    tables.show(
        versions.select(
            "policy_version",
            "episodes",
            "rewarded",
            "mean_reward",
            "reward_stddev",
            "successes",
            "failures",
            "first_seen",
            "last_seen",
        ),
        {
            "policy_version": TextColumn("policy"),
            "rewarded": NumberColumn("with reward"),
            "mean_reward": NumberColumn("mean reward", format="%+.3f"),
            "reward_stddev": NumberColumn("std. deviation", format="%.3f"),
            "first_seen": tables.when("first seen"),
            "last_seen": tables.when("last seen"),
        },
    )


render()
