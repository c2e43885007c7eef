"""Settings of the embedded ClickHouse as a role of its own."""

import ipaddress
from types import MappingProxyType

from pydantic import Field, field_validator

from ..section import FilePath
from .base import Port, RoleSettings


class ClickhouseSettings(RoleSettings):
    """``[serve.clickhouse]``: serve the embedded ClickHouse."""

    role = "clickhouse"
    module = "spanloop.embedded_clickhouse.server"
    alone = MappingProxyType({"port": 8123})

    host: str = "127.0.0.1"
    """IP address to listen on; other hosts need the password."""
    port: Port = 0
    """HTTP port; 0 selects a free one."""
    password_file: FilePath | None = None
    """File that holds the password of the user spanloop. Default: one is made in the data directory."""
    memory_cap_bytes: int | None = Field(default=None, gt=0)
    """Memory limit of the server. Default: a quarter of the machine's memory, at most 4 GiB."""

    @field_validator("host")
    @classmethod
    def _is_address(cls, host: str) -> str:
        return "127.0.0.1" if host == "localhost" else str(ipaddress.ip_address(host))
