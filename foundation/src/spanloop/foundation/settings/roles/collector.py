"""Settings of the collector, with defaults that were measured or come from the OTLP specification."""

from pydantic import Field

from spanloop.semconv.environment import COLLECTOR_PORT

from ..section import FilePath
from .base import ListeningSettings, Port


class CollectorSettings(ListeningSettings):
    """``[serve.collector]``: receive OTLP, store it on disk, write it to ClickHouse."""

    role = "collector"
    module = "spanloop.collector"

    host: str = "127.0.0.1"
    """Address to listen on; beyond the loopback only with API keys, or with allow_anonymous."""
    port: Port = COLLECTOR_PORT
    """Port of OTLP/HTTP and scores; 0 selects a free one."""
    grpc_port: Port | None = None
    """Port of OTLP/gRPC; 0 selects a free one. Default: 4317 beside port 4318 when it is free, else a free one."""
    no_grpc: bool = False
    """Serve HTTP only."""
    allow_anonymous: bool = False
    """Listen beyond the loopback without API keys: every client that reaches the address may send."""
    spool_limit_bytes: int = Field(default=4 * 2**30, gt=0)
    """Respond 503 when this many acknowledged bytes wait for ClickHouse; clients retry."""
    body_limit_bytes: int = Field(default=64 * 2**20, gt=0)
    """Refuse larger requests with 413, counted before and after decompression; the specification recommends 64 MiB."""
    memory_limit_bytes: int = Field(default=256 * 2**20, gt=0)
    """Respond 503 when this many bytes of bodies, decompressed and not yet on disk, are in memory."""
    redact: FilePath | None = None
    """File of redaction rules. Default: $SPANLOOP_REDACT, else redaction.toml in the data directory, if it exists."""
    block_bytes: int | None = Field(default=None, gt=0)
    """Limit of the bytes of bodies in one block. Default: 64 MiB, which are about 20,000 spans of 3 KB; less where
    ClickHouse has less than 1 GiB of memory."""
    linger_s: float = Field(default=0.2, ge=0)
    """Seconds that the writer waits for a block to fill; most of the delay until a single span is queryable."""
    longest_linger_s: float = Field(default=1.0, ge=0)
    """Seconds that it waits for a quarter of a block while more than 1 MB/s arrives: small inserts are expensive."""
    drain_timeout_s: float = Field(default=5.0, ge=0)
    """Seconds that a stopping collector continues to write to ClickHouse; the rest stays in the spool."""
