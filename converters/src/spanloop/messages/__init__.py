"""Messages: their JSON, what they say, and how lists of them are read."""

from .codec import MalformedMessagesError, dump, parse_json, parse_json_or_none
from .facts import NO_PARTS, Facts
from .log import NO_HISTORY, History, MessageLog, parse_messages
from .model import Message, ToolCall, ToolResponse, chain, digest
from .view import REDACTED_MARKERS

__all__ = [
    "NO_HISTORY",
    "NO_PARTS",
    "REDACTED_MARKERS",
    "Facts",
    "History",
    "MalformedMessagesError",
    "Message",
    "MessageLog",
    "ToolCall",
    "ToolResponse",
    "chain",
    "digest",
    "dump",
    "parse_json",
    "parse_json_or_none",
    "parse_messages",
]
