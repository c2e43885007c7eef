"""What every session shares: the store's connection, the job API and the model registry of one data directory.

Invariant: a ClickHouse that was restarted (another process, another port) is found on the next paint, because the
cache's key is what its run file says.
"""
# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false

import os
from datetime import UTC, datetime
from pathlib import Path

import streamlit as st

from spanloop.datadir import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, read_run_file
from spanloop.store import Store, connect
from spanloop.training.jobs import JobApi
from spanloop.training.registry import Registry


def data_dir() -> DataDir:
    """The data directory that ``SPANLOOP_DATA_DIR`` names."""
    return DataDir()


def store() -> Store:
    """The connection that all sessions share.

    Raises:
        NotRunningError: No ClickHouse is announced.
        StoreError: It does not answer.
    """
    directory = data_dir()
    external = os.environ.get(CLICKHOUSE_URL_ENV, "")
    running = read_run_file(directory.path, "clickhouse")
    return _store(directory.path, external or f"{running}")


def job_api() -> JobApi:
    """The job API of the data directory."""
    return _job_api(data_dir().path)


def registry() -> Registry:
    """The model registry of the data directory."""
    return _registry(data_dir().path)


def command(arguments: str) -> str:
    """The ``spanloop`` command line that works on this page's data directory."""
    path = data_dir().path
    return f"spanloop {arguments}" if path == Path.home() / ".spanloop" else f"spanloop {arguments} --data-dir {path}"


def now() -> datetime:
    """The present, in UTC."""
    return datetime.now(UTC)


def time_zone() -> str:
    """The viewer's time zone, else UTC."""
    return st.context.timezone or "UTC"


@st.cache_resource(show_spinner=False, max_entries=2)
def _store(path: Path, key: str) -> Store:
    del key  # it only tells one server process from the next
    return connect(DataDir(path))


@st.cache_resource(show_spinner=False)
def _job_api(path: Path) -> JobApi:
    return JobApi(DataDir(path).open())


@st.cache_resource(show_spinner=False)
def _registry(path: Path) -> Registry:
    return Registry(DataDir(path).open())
