"""The metrics of the MCP server."""

from typing import Final

from spanloop.foundation.telemetry.metrics import Families, Metrics

FAMILIES: Final[Families] = {
    "questions_total": ("counter", "Calls of tools, by tool and result: ok or error."),
    "question_seconds": ("histogram", "Time from a call of a tool to its reply."),
    "refused_requests_total": ("counter", "HTTP requests that were refused, by status."),
}


class McpMetrics(Metrics):
    """Counts questions and refused requests."""

    def __init__(self) -> None:
        super().__init__("spanloop_mcp_", FAMILIES)
