"""An answer as its client received and returned it, and where a rendering of it ends.

Invariant: a rendering stands for what the model sampled only if it repeats the reasoning, the text and the names of the
calls that the client received. A template that drops one of them is overruled in one case: the version keeps thinking.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, NamedTuple, Self

from ..client.json_codec import as_list, as_object
from .message_text import text_of
from .token_parts import AnswerSource, normalise
from .vocabulary import Vocabulary

_END_OF_THINKING: Final = "</think>"
"""Before the words of an answer whose thinking no parser took out of its text."""


class ReceivedAnswer(NamedTuple):
    """Texts of one answer, normalised."""

    texts: tuple[str, ...]
    """Reasoning and content, in the order in which a rendering repeats them."""
    names: tuple[str, ...]
    """Names of the functions that it calls."""
    is_complete: bool
    """Whether the message has all that the client received."""

    @classmethod
    def of(cls, messages: Sequence[Any], source: AnswerSource) -> "Self | None":
        """Return the answer in a request's messages; None where it is unknown."""
        if not 0 <= source.message < len(messages):
            return None
        message = as_object(messages[source.message])
        reasoning = reasoning_of(message)
        texts = (reasoning, text_of(message.get("content")))
        functions = [as_object(as_object(call).get("function")) for call in as_list(message.get("tool_calls"))]
        return cls(
            tuple(normalise(text.encode(errors="replace")) for text in texts),
            tuple(normalise(str(function.get("name") or "").encode(errors="replace")) for function in functions),
            is_complete=bool(reasoning) or not source.has_reasoning,
        )

    def end_in(self, rendered: Sequence[int], begin: int, vocabulary: Vocabulary, marks: Collection[int]) -> int | None:
        """Return the position of the special token that ends the answer in a rendering; None: it drops a part.

        Args:
            rendered: The rendering.
            begin: Where the part begins that the answer begins in.
            vocabulary: Of the model.
            marks: Special tokens that the answer itself may have.
        """
        if not self.is_complete:
            return None
        special = vocabulary.special
        for end in range(begin + 1, len(rendered)):
            if rendered[end] not in special:
                continue
            text = visible_text(rendered[begin:end], vocabulary)
            if self.is_repeated_in(text):
                return end
            if rendered[end] not in marks:
                return None
        return None

    def begins_alike(self, sampled: str, rendered: str, mark: str) -> bool:
        """Return whether the template adds nothing before the answer, such as an empty block of thinking.

        Args:
            sampled: Normalised text of what was sampled.
            rendered: That of the answer in the rendering.
            mark: Of the first call or block in what was sampled; empty without one.
        """
        text = next(filter(None, self.texts), mark)
        if not text:
            return sampled[:1] == rendered[:1]
        before, found, _ = rendered.partition(text)
        return bool(found) and sampled.partition(text)[0] == before

    def without_thinking(self) -> Self:
        """Return the answer as a template renders it that drops thinking."""
        return self._replace(texts=("", self.texts[-1].rpartition(_END_OF_THINKING)[2]), is_complete=True)

    def begins_without_thinking(self, sampled: str, rendered: str, marks: Sequence[str]) -> bool:
        """Return whether the rendering has before the answer what was sampled, but for one piece that it drops.

        Args:
            sampled: Normalised text of what was sampled.
            rendered: That of the answer in the rendering.
            marks: Of the calls and blocks in what was sampled, in order.
        """
        text = self.texts[-1] or next((mark for mark in marks if mark in rendered), "")
        before, found, _ = rendered.partition(text) if text else ("", "", "")
        if not found:
            return False
        thought = sampled[: sampled.rfind(text)]
        return _equal_length(before, thought) + _equal_length(before[::-1], thought[::-1]) >= len(before)

    def is_repeated_in(self, text: str) -> bool:
        """Return whether a normalised text has all that the client received, in order."""
        at = 0
        for each in (*self.texts, *self.names):
            at = text.find(each, at)
            if at < 0:
                return False
            at += len(each)
        return True


def _equal_length(text: str, other: str) -> int:
    """Return how many characters both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, other, strict=False)))


def reasoning_of(message: Mapping[str, Any]) -> str:
    """Return the reasoning of a message, under the names that engines give it; empty for none."""
    return text_of(message.get("reasoning") or message.get("reasoning_content"))


def visible_text(token_ids: Sequence[int], vocabulary: Vocabulary) -> str:
    """Return the normalised text of tokens without the special ones, which engines leave out."""
    special = vocabulary.special
    return normalise(vocabulary.text(token_id for token_id in token_ids if token_id not in special))
