"""Provenance of models: the job that made a version, the dataset of that job, and the jobs that used an episode.

A manifest never changes once it exists, so it is read from disk once.
"""
# pyright: reportUntypedFunctionDecorator=false, reportUnknownMemberType=false

from pathlib import Path

import streamlit as st

from spanloop.dashboard import resources
from spanloop.semconv.errors import JobError
from spanloop.training.dataset_manifest import MANIFEST_NAME, Manifest, load_manifest
from spanloop.training.jobs import Job

_MAX_JOBS = 100
"""Newest jobs that are searched for an episode."""


def find_manifest(job_id: str) -> Manifest | None:
    """Return the manifest of a job's dataset; None before it is written, or when it is damaged.

    The job itself reports a damaged dataset as its error.
    """
    folder = resources.data_dir().jobs / job_id
    return _manifest(folder) if (folder / MANIFEST_NAME).is_file() else None


def find_training_jobs(episode_id: str, revision: int) -> list[Job]:
    """Return the jobs, newest first, whose datasets contain this revision of the episode."""
    return [
        job
        for job in resources.job_api().list(limit=_MAX_JOBS)
        if (episode_id, revision) in _pinned_episodes_of(job.id)
    ]


def find_source_job(job_id: str | None) -> Job | None:
    """Return the job that made a version; None for an imported version or a job that is no longer stored."""
    if not job_id:
        return None
    try:
        return resources.job_api().get(job_id)
    except JobError:
        return None


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
