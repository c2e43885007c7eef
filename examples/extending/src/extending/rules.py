"""An attribution rule: a shop's quotes expire, and a tool that refuses one was called too late by the policy."""

from typing import ClassVar

from pydantic import Field

from spanloop.converters.attribution import Finding, ToolCallContext, ToolCallRule
from spanloop.converters.enums import FaultOwner


class StaleQuote(ToolCallRule):
    """A tool says that the quote has expired."""

    needs_sign: ClassVar[bool] = True
    confidence: float = Field(default=0.9, ge=0, le=1)
    """From 0 to 1."""

    def find(self, context: ToolCallContext) -> Finding | None:
        """Return a finding where the tool says that the quote has expired."""
        result = context.result
        if result is None or not result.is_error or "quote expired" not in result.content.lower():
            return None
        evidence: dict[str, object] = {"result": result.content[:200]}
        return Finding("stale_quote", FaultOwner.POLICY, self.confidence, context.message, evidence)
