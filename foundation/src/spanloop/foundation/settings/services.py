"""``[services]`` and ``[storage]``: where the roles are, which key opens them, and the folder that they share.

Invariant: a setting is a variable of the environment in the end, which every process that is started inherits. A
variable that is set already wins over the file. A secret's file is named to other processes, its content is not.
"""

import os
from collections.abc import Iterator, MutableMapping
from typing import Self

from pydantic import model_validator

from spanloop.semconv.environment import (
    CLICKHOUSE_URL_ENV,
    COLLECTOR_URL_ENV,
    CONTROL_URL_ENV,
    DASHBOARD_URL_ENV,
    FILE_SUFFIX,
    GATEWAY_URL_ENV,
    KEY_ENV,
    SHARED_DIR_ENV,
)

from .section import FilePath, Section


class Services(Section):
    """``[services]``: addresses of roles on other hosts. ``spanloop up`` does not start what is named here."""

    collector_url: str = ""
    """Base URL of a collector, such as ``http://collector.example:4318``; ``SPANLOOP_COLLECTOR_URL`` wins."""
    gateway_url: str = ""
    """Base URL of the gateway; ``SPANLOOP_GATEWAY_URL`` wins."""
    dashboard_url: str = ""
    """Base URL of the dashboard; ``SPANLOOP_DASHBOARD_URL`` wins."""
    clickhouse_url: str = ""
    """``http(s)://user:password@host:port/database``; ``SPANLOOP_CLICKHOUSE_URL`` wins."""
    clickhouse_url_file: FilePath | None = None
    """A file that holds this URL, which keeps its password out of this file."""
    control_url: str = ""
    """SQLAlchemy URL of the control database; ``SPANLOOP_CONTROL_URL`` wins."""
    control_url_file: FilePath | None = None
    """A file that holds this URL."""
    key_file: FilePath | None = None
    """A file that holds the API key with which this host calls the other roles; ``SPANLOOP_KEY`` wins."""

    @model_validator(mode="after")
    def _names_each_url_once(self) -> Self:
        for name in ("clickhouse_url", "control_url"):
            if getattr(self, name) and getattr(self, f"{name}_file"):
                raise ValueError(f"{name} and {name}_file are both set: set one of them")
        return self


class Storage(Section):
    """``[storage]``: where files are."""

    shared_dir: FilePath | None = None
    """The folder of models, jobs and API keys, the same on all hosts; ``SPANLOOP_SHARED_DIR`` wins. Without it they are
    in the data directory."""


def export_settings(services: Services, storage: Storage, environment: MutableMapping[str, str] = os.environ) -> None:
    """Set the variables of the environment that the file names and that are not set.

    Args:
        services: The section.
        storage: The section.
        environment: The variables to complete.
    """
    for name, value in _variables(services, storage):
        base = name.removesuffix(FILE_SUFFIX)
        if value and not environment.get(base) and not environment.get(base + FILE_SUFFIX):
            environment[name] = value


def _variables(services: Services, storage: Storage) -> Iterator[tuple[str, str]]:
    yield COLLECTOR_URL_ENV, services.collector_url
    yield GATEWAY_URL_ENV, services.gateway_url
    yield DASHBOARD_URL_ENV, services.dashboard_url
    yield CLICKHOUSE_URL_ENV, services.clickhouse_url
    yield CLICKHOUSE_URL_ENV + FILE_SUFFIX, str(services.clickhouse_url_file or "")
    yield CONTROL_URL_ENV, services.control_url
    yield CONTROL_URL_ENV + FILE_SUFFIX, str(services.control_url_file or "")
    yield KEY_ENV + FILE_SUFFIX, str(services.key_file or "")
    yield SHARED_DIR_ENV, str(storage.shared_dir or "")
