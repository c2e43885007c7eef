"""Training jobs: their metrics, their datasets, and the jobs behind a model version or an episode.

A manifest never changes once it exists, so it is read from disk once.
"""
# pyright: reportUntypedFunctionDecorator=false, reportUnknownMemberType=false

from pathlib import Path
from typing import cast

import polars as pl
import streamlit as st

from spanloop.dashboard import resources
from spanloop.foundation.errors import JobError
from spanloop.store import Store
from spanloop.training.dataset.manifest import MANIFEST_NAME, Manifest, load_manifest
from spanloop.training.jobs.training_ids import training_id
from spanloop.training.run.job_api import Job
from spanloop.training.run.stage_progress import StageProgress, stage_progress

_MAX_JOBS = 100
"""Newest jobs that are searched for an episode."""


def training_ids(job: Job) -> list[str]:
    """Return the ids of the job's stages; one, the job's own, for a job without further stages."""
    return [training_id(job.id, number) for number in range(1, 2 + len(job.spec.stages))]


def find_stages(job: Job) -> list[StageProgress]:
    """Return the stages of a job; one for a job without further stages."""
    return stage_progress(resources.data_dir(), resources.registry(), job)


def find_manifest(job_id: str) -> Manifest | None:
    """Return the manifest of the dataset of a job's stage; None before it is written, or when it is damaged.

    The job itself reports a damaged dataset as its error.
    """
    folder = resources.data_dir().jobs / job_id
    return _manifest(folder) if (folder / MANIFEST_NAME).is_file() else None


def find_jobs_trained_on(episode_id: str, revision: int) -> list[Job]:
    """Return the jobs, newest first, whose datasets contain this revision of the episode."""
    return [
        job
        for job in resources.job_api().list(limit=_MAX_JOBS)
        if any((episode_id, revision) in _pinned_episodes_of(training) for training in training_ids(job))
    ]


def find_source_job(job_id: str | None) -> Job | None:
    """Return the job that made a version; None for a version added from outside, or a job no longer stored."""
    if not job_id:
        return None
    try:
        return resources.job_api().get(job_id)
    except JobError:
        return None


def fetch_metric_jobs(store: Store, max_rows: int = 50) -> pl.DataFrame:
    """Return the jobs that recorded metrics, newest first."""
    return store.query("dashboard_metric_jobs", max_rows=max_rows)


def fetch_metric_names(store: Store, job_ids: list[str]) -> list[str]:
    """Return the names of the metrics that the jobs recorded."""
    return cast("list[str]", store.query("dashboard_metric_names", job_ids=job_ids)["name"].to_list())


def fetch_metrics(store: Store, job_ids: list[str], names: list[str]) -> pl.DataFrame:
    """Return columns ``job_id``, ``step``, ``name``, ``value``."""
    return store.query("dashboard_metrics", job_ids=job_ids, names=names)


def _pinned_episodes_of(job_id: str) -> frozenset[tuple[str, int]]:
    folder = resources.data_dir().jobs / job_id
    return _pinned_episodes(folder) if (folder / MANIFEST_NAME).is_file() else frozenset()


@st.cache_resource(show_spinner=False, max_entries=200)
def _manifest(folder: Path) -> Manifest | None:
    try:
        return load_manifest(folder)
    except JobError:
        return None


@st.cache_resource(show_spinner=False, max_entries=200)
def _pinned_episodes(folder: Path) -> frozenset[tuple[str, int]]:
    manifest = _manifest(folder)
    return frozenset((episode.episode_id, episode.revision) for episode in manifest.pinned) if manifest else frozenset()
