"""``[services]`` and ``[storage]``: where the roles are, which key opens them, and the files that they share.

Invariant: a setting is a variable of the environment in the end, which every process that is started inherits. A
variable that is set already wins over the file. A secret's file is named to other processes, its content is not.
"""

import os
from collections.abc import MutableMapping
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

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
    url: str = ""
    """Object storage of models, data sets and checkpoints, such as ``s3://bucket/prefix``, or another URL of fsspec.
    Credentials come from the environment (``AWS_PROFILE``, ``AWS_ACCESS_KEY_ID``). Empty: they are folders."""
    cache_bytes: int | None = Field(default=None, gt=0)
    """Most bytes of the copies of objects on a host, in ``objects/`` of its data directory. Default: 64 GiB."""

    @classmethod
    def variable(cls, field: str) -> str:
        """Return the environment variable of a field, such as ``SPANLOOP_STORAGE_URL``."""
        return super().variable(field if field == "shared_dir" else f"storage_{field}")

    @field_validator("url")
    @classmethod
    def _names_no_password(cls, url: str) -> str:
        if url and "://" not in url:
            raise ValueError("expected a URL such as s3://bucket/prefix; a folder is shared_dir")
        if urlsplit(url).password:
            raise ValueError("the URL has a password; give credentials in the environment")
        return url.rstrip("/")


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
