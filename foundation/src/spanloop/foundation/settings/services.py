"""``[services]`` and ``[storage]``: where the roles are, which key opens them, and the folder that they share.

Invariant: a setting is a variable of the environment in the end, which every process that is started inherits. A
variable that is set already wins over the file. A secret's file is named to other processes, its content is not.
"""

import os
from collections.abc import MutableMapping
from typing import Self

from pydantic import SecretStr, model_validator

from spanloop.semconv.environment import FILE_SUFFIX

from .section import FilePath, Section

_NO_URL = SecretStr("")


class EnvironmentSection(Section):
    """A section whose settings the parts of a process read from the environment."""

    @classmethod
    def variable(cls, field: str) -> str:
        """Return the environment variable of a field, such as ``SPANLOOP_COLLECTOR_URL``."""
        return f"SPANLOOP_{field}".upper()


class Services(EnvironmentSection):
    """``[services]``: addresses of roles on other hosts. ``spanloop up`` does not start what is named here."""

    collector_url: str = ""
    """Base URL of a collector, such as ``http://collector.example:4318``."""
    gateway_url: str = ""
    """Base URL of the gateway."""
    dashboard_url: str = ""
    """Base URL of the dashboard."""
    clickhouse_url: SecretStr = _NO_URL
    """``http(s)://user:password@host:port/database``, or several URLs of one cluster, separated by commas."""
    clickhouse_url_file: FilePath | None = None
    """A file that holds this URL, which keeps its password out of this file."""
    clickhouse_cluster: str = ""
    """Name of the cluster in ``remote_servers`` of these servers; empty for one server."""
    control_url: SecretStr = _NO_URL
    """SQLAlchemy URL of the control database."""
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


class Storage(EnvironmentSection):
    """``[storage]``: where files are."""

    shared_dir: FilePath | None = None
    """The folder of models, jobs and API keys, the same on all hosts. Without it they are in the data directory."""


def export_settings(services: Services, storage: Storage, environment: MutableMapping[str, str] = os.environ) -> None:
    """Set the variables of the environment that the file names and that are not set.

    Args:
        services: The section.
        storage: The section.
        environment: The variables to complete.
    """
    for section in (services, storage):
        for field, value in section:
            name = section.variable(field)
            base = name.removesuffix(FILE_SUFFIX)
            if value and not environment.get(base) and not environment.get(base + FILE_SUFFIX):
                environment[name] = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
