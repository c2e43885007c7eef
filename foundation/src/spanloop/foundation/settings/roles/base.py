"""The base of a role's settings, and the settings that several roles have.

Invariant: a field is one setting with its default, type and meaning. It is an option of the role's process and of
``spanloop serve``, a key of ``[serve.ROLE]`` and a variable of the environment; nothing else states it again.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator

from ..section import FilePath, Section, VariableSection


def _is_port(port: int) -> int:
    if not 0 <= port < 65_536:
        raise ValueError(f"{port} is not a port, expected 0 to 65535")
    return port


Port = Annotated[int, AfterValidator(_is_port)]
"""A TCP port; 0 lets the system choose, and the run file states it."""


class RoleSettings(VariableSection):
    """The settings of one role. A value that is made directly reads neither the file nor the environment."""

    role: ClassVar[str]
    """Its name: of ``spanloop serve ROLE``, and of the section ``[serve.ROLE]``."""
    module: ClassVar[str]
    """The module that runs it, with ``python -m``."""
    alone: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Defaults with ``spanloop serve ROLE`` that differ from those with ``spanloop up``."""

    @classmethod
    def variable_prefix(cls) -> str:
        """Return the first characters of the role's variables, such as ``SPANLOOP_SERVE_GATEWAY_``."""
        return f"SPANLOOP_SERVE_{cls.role}_".upper()


class ListeningSettings(RoleSettings):
    """A role that other hosts call, by HTTP or HTTPS."""

    host: str = "127.0.0.1"
    """Address to listen on; beyond the loopback only with API keys."""
    port: Port = 0
    """Port to listen on; 0 selects a free one."""
    certificate_file: FilePath | None = None
    """Speak TLS with this certificate, PEM, followed by those of its issuers. Default: that of ``[tls]``."""
    private_key_file: FilePath | None = None
    """Its private key, PEM, without a passphrase. Default: that of ``[tls]``."""


class StatusSettings(RoleSettings):
    """A role that serves nothing but its state."""

    status_host: str = "127.0.0.1"
    """Address of /healthz and /metrics; beyond the loopback only with API keys."""
    status_port: Port | None = None
    """Port of /healthz and /metrics; 0 selects a free one. Default: none."""


class ProcessOptions(Section):
    """Options of every role's process."""

    data_dir: Path | None = None
    """The directory that holds all data. Default: $SPANLOOP_DATA_DIR, else ~/.spanloop."""
    config: Path | None = None
    """Configuration file. Default: $SPANLOOP_CONFIG, else spanloop.toml in the working or the data directory."""
    log_format: Literal["text", "json"] | None = None
    """Format of the logs; json writes one object a line, with trace ids. Default: $SPANLOOP_LOG_FORMAT, else [logging]
    format, else text."""
