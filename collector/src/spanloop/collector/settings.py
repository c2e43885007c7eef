"""What can be set about a collector, with defaults that were measured or that the OTLP specification gives."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from spanloop.embedded_clickhouse.config import default_memory_cap_bytes
from spanloop.semconv.environment import COLLECTOR_PORT

GRPC_PORT: Final = 4317
_BLOCK_BYTES: Final = 64 * 2**20
"""Blocks half as large cost ClickHouse some 15 % more CPU."""
_BLOCK_SHARE: Final = 16
"""To insert a block ClickHouse takes seven to eleven times its bytes."""


def _default_block_bytes() -> int:
    """As much as the embedded ClickHouse has the memory for."""
    return min(_BLOCK_BYTES, default_memory_cap_bytes() // _BLOCK_SHARE)


@dataclass(frozen=True)
class Settings:
    """Settings of one collector process."""

    host: str = "127.0.0.1"
    """Address to listen on; beyond loopback only with API keys (`spanloop.authentication`) or `allow_anonymous`."""
    allow_anonymous: bool = False
    """Listen beyond loopback without keys: whoever reaches the address may send."""
    port: int = COLLECTOR_PORT
    """0 lets the system choose; the run file then says which."""
    grpc_port: int | None = None
    """OTLP/gRPC. 0 lets the system choose. None is the standard port beside the standard port of HTTP, when it is free,
    else any; the run file then says which."""
    has_grpc: bool = True
    """Whether to listen for gRPC at all."""
    body_limit_bytes: int = 64 * 2**20
    """Most bytes of one request, compressed and again decompressed; the specification recommends 64 MiB."""
    memory_limit_bytes: int = 256 * 2**20
    """Most bytes of bodies in memory at once, decompressed and not yet on disk; above it requests get 503."""
    spool_limit_bytes: int = 4 * 2**30
    """Most acknowledged bytes that may wait for ClickHouse; above it requests get 503 and their senders retry."""
    block_bytes: int = field(default_factory=_default_block_bytes)
    """Most bytes of bodies in one block for ClickHouse: about 20,000 spans of 3 KB, on a small machine fewer."""
    linger_s: float = 0.2
    """How long the writer waits for a block to fill; most of a lone span's way to being queryable."""
    longest_linger_s: float = 1.0
    """How long it waits for a quarter of a block while more than a megabyte comes in a second: small ones are dear."""
    drain_timeout_s: float = 5.0
    """How long a stopping collector goes on writing to ClickHouse; the rest waits in the spool."""
    redaction_file: Path | None = None
    """Redaction rules; None is ``$SPANLOOP_REDACT``, else ``redaction.toml`` in the data directory, if there is one."""
