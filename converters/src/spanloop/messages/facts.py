"""Facts about a list of messages as a whole, updated by the new ones."""

from typing import Final

import msgspec

from .validator import Course, MessageHistory

NO_PARTS: Final = '"parts":[]'
"""In a message's JSON: nothing is in it."""


class Facts(msgspec.Struct, frozen=True, gc=False):
    """Facts about the first ``length`` messages of a list."""

    length: int = 0
    is_redacted: bool = False
    has_system: bool = False
    has_prompt: bool = False
    """Whether a message is the system's or the user's."""
    has_prompt_content: bool = False
    """Whether one of those has any parts."""
    course: Course = Course()

    def further(self, history: MessageHistory) -> "Facts":
        """With all messages of ``history``, which begins with those that were looked at."""
        if history.length == self.length:
            return self
        is_redacted, has_system = self.is_redacted, self.has_system
        has_prompt, has_prompt_content = self.has_prompt, self.has_prompt_content
        first = max(self.length - 1, 0)
        messages = history.since(first)
        for message in messages[self.length - first :]:
            is_redacted = is_redacted or message.is_redacted
            if message.role in {"user", "system"}:
                has_prompt = True
                has_system = has_system or message.role == "system"
                has_prompt_content = has_prompt_content or NO_PARTS not in message.json
        course = self.course.further(history, messages, self.length)
        return Facts(history.length, is_redacted, has_system, has_prompt, has_prompt_content, course)


NO_FACTS: Final = Facts()
