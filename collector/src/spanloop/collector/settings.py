"""Settings of a collector, with defaults that were measured or come from the OTLP specification."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from spanloop.embedded_clickhouse.config import default_memory_cap_bytes
from spanloop.foundation.keys.tls import TlsFiles
from spanloop.foundation.settings import Limits
from spanloop.semconv.environment import COLLECTOR_PORT

GRPC_PORT: Final = 4317
_BLOCK_BYTES: Final = 64 * 2**20
"""Blocks of half this size cost ClickHouse some 15 % more CPU."""
_BLOCK_SHARE: Final = 16
"""An insert takes seven to eleven times the block's bytes of ClickHouse's memory."""


def _default_block_bytes() -> int:
    """Return the largest block for which the embedded ClickHouse has the memory."""
    return min(_BLOCK_BYTES, default_memory_cap_bytes() // _BLOCK_SHARE)


@dataclass(frozen=True)
class Settings:
    """Settings of one collector process."""

    host: str = "127.0.0.1"
    """Address to listen on; beyond loopback only with API keys (`spanloop.foundation.keys`) or `allow_anonymous`."""
    allow_anonymous: bool = False
    """Listen beyond loopback without keys: every client that reaches the address may send."""
    port: int = COLLECTOR_PORT
    """0 lets the system choose; the run file states the port."""
    grpc_port: int | None = None
    """Port of OTLP/gRPC. 0 lets the system choose. None is 4317 when HTTP has 4318 and 4317 is free, else 0; the run
    file states the port."""
    has_grpc: bool = True
    """Whether to listen for gRPC at all."""
    body_limit_bytes: int = 64 * 2**20
    """Limit of one request's bytes, before and after decompression; the specification recommends 64 MiB."""
    memory_limit_bytes: int = 256 * 2**20
    """Limit of the bytes of bodies in memory, decompressed and not yet on disk; above it requests get 503."""
    spool_limit_bytes: int = 4 * 2**30
    """Limit of acknowledged bytes that wait for ClickHouse; above it requests get 503 and clients retry."""
    block_bytes: int = field(default_factory=_default_block_bytes)
    """Limit of the bytes of bodies in one block: about 20,000 spans of 3 KB, fewer on a small machine."""
    linger_s: float = 0.2
    """How long the writer waits for a block to fill; most of the delay until a single span is queryable."""
    longest_linger_s: float = 1.0
    """How long it waits for a quarter of a block while more than 1 MB/s arrives: small inserts are expensive."""
    drain_timeout_s: float = 5.0
    """How long a stopping collector continues to write to ClickHouse; the rest stays in the spool."""
    limits: Limits = field(default_factory=Limits)
    """Limits of rate, concurrency and body size by API key."""
    tls: TlsFiles | None = None
    """The certificate of HTTP and gRPC; None is plain HTTP."""
    redaction_file: Path | None = None
    """Redaction rules; None is ``$SPANLOOP_REDACT``, else ``redaction.toml`` in the data directory, if it exists."""
