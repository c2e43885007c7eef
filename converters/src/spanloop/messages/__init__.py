"""Messages: their JSON, what they say, and how lists of them are read."""

from .codec import MalformedMessagesError, dump, list_items, parse_json, parse_json_or_none
from .facts import NO_PARTS, Facts
from .model import Message, ToolCall, ToolResponse, chain, digest, extend, join_json
from .reader import Conversation, MessageReader, parse_messages
from .view import REDACTED_MARKERS, parse_system_instructions, read_message

__all__ = [
    "NO_PARTS",
    "REDACTED_MARKERS",
    "Conversation",
    "Facts",
    "MalformedMessagesError",
    "Message",
    "MessageReader",
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
    "parse_system_instructions",
    "read_message",
]
