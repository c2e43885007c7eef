"""Settings of the server that answers assistants by the Model Context Protocol."""

from pydantic import Field

from .base import ListeningSettings, Port


class McpSettings(ListeningSettings):
    """``[serve.mcp]``: answer an assistant's questions about the store by the Model Context Protocol."""

    role = "mcp"
    module = "spanloop.mcp_server"

    host: str = "127.0.0.1"
    """Address to listen on; beyond the loopback only with API keys, or with allow_anonymous."""
    port: Port = 8011
    """Port of streamable HTTP, at /mcp; 0 selects a free one."""
    allow_anonymous: bool = False
    """Listen beyond the loopback without API keys: every client that reaches the address may read the store."""
    stdio: bool = False
    """Speak over standard input and output instead of HTTP, for an assistant that starts this process. No key."""
    services: str = ""
    """Names of services, separated by commas, whose rows are visible. Default: all. A key can limit them further."""
    reply_rows: int = Field(default=200, gt=0)
    """Most rows of one reply."""
    reply_bytes: int = Field(default=64 * 2**10, ge=16 * 2**10)
    """Most bytes of one reply; a longer one is cut and says how to go on."""
    cell_characters: int = Field(default=2_000, ge=100)
    """Most characters of one text of a reply, such as a message; a longer one is cut and says by how much."""
    timeout_s: float = Field(default=10.0, gt=0)
    """Longest time of one statement in ClickHouse, seconds."""
    memory_bytes: int = Field(default=2**30, gt=0)
    """Most memory of one statement in ClickHouse."""
    questions: int = Field(default=4, gt=0)
    """Questions that are answered at the same time; more wait."""

    @property
    def service_names(self) -> tuple[str, ...]:
        """The single names of ``services``."""
        return tuple(name.strip() for name in self.services.split(",") if name.strip())
