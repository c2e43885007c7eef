"""Where a model version came from: the job that made it and what that job trained on; and who trained on an episode.

A manifest never changes once it exists, so it is read from the disk once.
"""
# pyright: reportUntypedFunctionDecorator=false, reportUnknownMemberType=false

from pathlib import Path

import streamlit as st

from spanloop.dashboard import resources
from spanloop.semconv.errors import JobError
from spanloop.training.dataset_manifest import MANIFEST_NAME, Manifest, load_manifest
from spanloop.training.jobs import Job

_MAX_JOBS = 100
"""Newest jobs that are asked whether they trained on an episode."""


def dataset_of(job_id: str) -> Manifest | None:
    """What the job trains on; None before its dataset is written, or when it is not what was written.

    A damaged dataset is the job's own error to report: it stops the job.
    """
    folder = resources.data_dir().jobs / job_id
    return _manifest(folder) if (folder / MANIFEST_NAME).is_file() else None


def trained_on(episode_id: str, revision: int) -> list[Job]:
    """The jobs, newest first, whose datasets hold this revision of the episode."""
    return [job for job in resources.job_api().list(limit=_MAX_JOBS) if (episode_id, revision) in _pinned_by(job.id)]


def maker(job_id: str | None) -> Job | None:
    """The job that made a version; None for a version from outside, or when the control database forgot the job."""
    if not job_id:
        return None
    try:
        return resources.job_api().get(job_id)
    except JobError:
        return None


def _pinned_by(job_id: str) -> frozenset[tuple[str, int]]:
    folder = resources.data_dir().jobs / job_id
    return _pinned(folder) if (folder / MANIFEST_NAME).is_file() else frozenset()


@st.cache_resource(show_spinner=False, max_entries=200)
def _manifest(folder: Path) -> Manifest | None:
    try:
        return load_manifest(folder)
    except JobError:
        return None


@st.cache_resource(show_spinner=False, max_entries=200)
def _pinned(folder: Path) -> frozenset[tuple[str, int]]:
    manifest = _manifest(folder)
    return frozenset((each.episode_id, each.revision) for each in manifest.pinned) if manifest else frozenset()
