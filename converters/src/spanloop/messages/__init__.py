"""Messages: their JSON, what they say, and how lists of them are read."""

from .codec import MalformedMessagesError, dump, list_items, parse_json, parse_json_or_none
from .facts import NO_PARTS, Facts
from .log import NO_HISTORY, History, MessageLog, parse_messages
from .model import Message, ToolCall, ToolResponse, chain, digest, extend, join_json
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
    "extend",
    "join_json",
    "list_items",
    "parse_json",
    "parse_json_or_none",
    "parse_messages",
]
