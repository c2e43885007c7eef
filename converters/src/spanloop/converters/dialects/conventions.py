"""Conventions for the attributes of a model call, of which a span may carry several: two instrumentors write to it.

Invariant: a convention tells whose attributes are whose, not how they are read.
"""

import re
from typing import Final, NamedTuple


class Convention(NamedTuple):
    """Attributes that carry a call in one dialect."""

    messages: re.Pattern[str]
    """Keys of its messages."""
    keys: re.Pattern[str]
    """All of its keys."""

    def is_message(self, key: str) -> bool:
        """Whether an attribute holds messages."""
        return self.messages.match(key) is not None

    def is_key(self, key: str) -> bool:
        """Whether an attribute may belong to the convention."""
        return self.keys.match(key) is not None


CONVENTIONS: Final = (
    Convention(re.compile(r"gen_ai\.(?:input|output)\.messages"), re.compile(r"gen_ai\.(?!prompt|completion)")),
    Convention(
        re.compile(r"(?:gen_ai\.(?:prompt|completion)|llm\.(?:prompts|completions))(?:\.\d+\.|$)"),
        re.compile(r"gen_ai\.(?!input\.|output\.|system_)|llm\.(?!input|output)|traceloop\."),
    ),
    Convention(
        re.compile(r"llm\.(?:input|output)_messages\."),
        re.compile(r"llm\.(?!request|prompts\.|completions\.)|openinference\.|(?:input|output)\.(?:value|mime_type)"),
    ),
    Convention(
        re.compile(r"ai\.(?:prompt\.messages|response\.(?:text|toolCalls))$"),
        re.compile(r"ai\.|operation\.name$|resource\.name$|gen_ai\.(?:system|request|response|usage)\b"),
    ),
)
