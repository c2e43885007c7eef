"""Resources that all sessions share: the store's connection, the job API and the model registry of a data directory.

Invariant: the next run of a page finds a restarted ClickHouse (another process, another port), because the content of
its run file is the cache key.
"""
# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false

from datetime import UTC, datetime
from pathlib import Path

import streamlit as st

from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, read_run_file, read_setting
from spanloop.store import Store, connect
from spanloop.training.alerts.alert_api import AlertApi
from spanloop.training.evaluations.evaluation_api import EvaluationApi
from spanloop.training.jobs.queue_api import QueueApi
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import JobApi, JobSpec
from spanloop.training.spec.stored_spec import EvaluationSpec, parse_any_spec


def data_dir() -> DataDir:
    """Return the data directory that ``SPANLOOP_DATA_DIR`` names."""
    return DataDir()


def store() -> Store:
    """Return the store's connection, which all sessions share.

    Raises:
        NotRunningError: No ClickHouse is announced.
        StoreError: ClickHouse does not respond.
    """
    directory = data_dir()
    external_url = read_setting(CLICKHOUSE_URL_ENV)
    run_file = read_run_file(directory.path, "clickhouse")
    return _store(directory.path, external_url or f"{run_file}")


def job_api() -> JobApi:
    """Return the job API of the data directory."""
    return _job_api(data_dir().path)


def queue_api() -> QueueApi[JobSpec | EvaluationSpec]:
    """Return the API of the jobs of every kind."""
    return _queue_api(data_dir().path)


def evaluation_api() -> EvaluationApi:
    """Return the API of evaluations of the data directory."""
    return _evaluation_api(data_dir().path)


def alert_api() -> AlertApi:
    """Return the API of alerts of the data directory."""
    return _alert_api(data_dir().path)


def registry() -> Registry:
    """Return the model registry of the data directory."""
    return _registry(data_dir().path)


def cli_command(arguments: str) -> str:
    """Return the ``spanloop`` command line that works on this page's data directory."""
    path = data_dir().path
    return f"spanloop {arguments}" if path == Path.home() / ".spanloop" else f"spanloop {arguments} --data-dir {path}"


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def time_zone() -> str:
    """Return the viewer's time zone, else UTC."""
    return st.context.timezone or "UTC"


@st.cache_resource(show_spinner=False, max_entries=2)
def _store(path: Path, key: str) -> Store:
    del key  # only part of the cache key: it differs for each server process
    return connect(DataDir(path))


@st.cache_resource(show_spinner=False)
def _job_api(path: Path) -> JobApi:
    return JobApi(DataDir(path).open())


@st.cache_resource(show_spinner=False)
def _queue_api(path: Path) -> QueueApi[JobSpec | EvaluationSpec]:
    return QueueApi(DataDir(path).open(), parse_any_spec)


@st.cache_resource(show_spinner=False)
def _evaluation_api(path: Path) -> EvaluationApi:
    return EvaluationApi(DataDir(path).open())


@st.cache_resource(show_spinner=False)
def _alert_api(path: Path) -> AlertApi:
    return AlertApi(DataDir(path).open())


@st.cache_resource(show_spinner=False)
def _registry(path: Path) -> Registry:
    return Registry(DataDir(path).open())
