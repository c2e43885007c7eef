"""Conversations are continued under any tokenizer and template: nothing is tokenised again."""
# A stand-in's documents are JSON.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import json
import tempfile
from array import array
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from spanloop.converters.enums import RowStart
from spanloop.converters.tokens.row_starts import by_tokens
from spanloop.gateway.continuation.alignment import Alignment, Spans, align
from spanloop.gateway.continuation.token_parts import AnswerSource
from spanloop.gateway.continuation.vocabulary import Vocabulary

from .drawn_models import THINKING, DrawnModel, draw_model, words

Messages = list[dict[str, Any]]
_WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
"""A seed has no smaller one."""


class _Conversation:
    """Prompts as the gateway sends them, each aligned with the conversation before."""

    def __init__(self, model: DrawnModel, random: Random) -> None:
        self.model, self.random = model, random
        with tempfile.TemporaryDirectory() as folder:
            model.tokenizer.save(str(Path(folder) / "tokenizer.json"))
            self.vocabulary = Vocabulary.read(Path(folder))
        self.messages: Messages = [{"role": "user", "content": words(random, 4)}]
        self.ids = model.ids(self.messages)
        self.prompt = list(self.ids)
        self.spans = Spans()

    def answer(self) -> None:
        """Sample an answer, and receive it as a parser writes it."""
        random, model = self.random, self.model
        arguments = {words(random, 1): words(random, 2), "n": random.randint(0, 99)} if random.random() < 0.5 else None
        # Templates trim contents, and parsers those before a call.
        content = words(random, 3).strip() or "a"
        reasoning = words(random, 3).strip() or "b"
        text = model.answer(random, content, reasoning=reasoning, arguments=arguments)
        begin = len(self.ids)
        self.prompt = list(self.ids)
        self.ids += model.sampled(text + model.end, random)
        has_reasoning = model.thinking != "none"
        source = AnswerSource(len(self.messages), has_reasoning=has_reasoning)
        self.spans = self.spans.plus(begin, len(self.ids), source)
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if has_reasoning:
            message["reasoning"] = reasoning
        follows: dict[str, Any] = {"role": "user", "content": words(random, 3)}
        if arguments is not None:
            function = {"name": "find", "arguments": json.dumps(arguments)}
            message["tool_calls"] = [{"id": "c", "function": function}]
            follows = {"role": "tool", "tool_call_id": "c", "content": words(random, 3)}
        self.messages += [message, follows]

    def next_prompt(self) -> Alignment:
        rendered = array("I", self.model.ids(self.messages))
        aligned = align(array("I", self.ids), self.spans, rendered, self.vocabulary, self.messages)
        self.ids, self.spans = aligned.token_ids, aligned.sampled
        return aligned


@given(st.integers(0, 2**32), st.sampled_from(THINKING))
@settings(phases=_WITHOUT_SHRINKING)
def test_no_turn_is_tokenised_again(seed: int, thinking: str) -> None:
    random = Random(seed)
    conversation = _Conversation(draw_model(random, thinking), random)
    model, vocabulary = conversation.model, conversation.vocabulary
    for _ in range(6):
        conversation.answer()
        before = list(conversation.ids)
        aligned = conversation.next_prompt()
        drops = thinking in {"dropped", "emptied"} and conversation.messages[-1]["role"] == "user"
        if not drops:
            assert aligned.is_whole
            assert aligned.token_ids[: len(before)] == before
            suffix = vocabulary.text(aligned.token_ids[len(before) :]).decode()
            assert model.text(conversation.messages).endswith(suffix)
        else:
            length = len(conversation.prompt)
            assert by_tokens(before[:length], before[length:], aligned.token_ids) is not RowStart.RETOKENISED
        if not any(message.get("tool_calls") for message in conversation.messages):
            assert vocabulary.text(aligned.token_ids).decode() == model.text(conversation.messages)


@given(st.integers(0, 2**32))
@settings(phases=_WITHOUT_SHRINKING)
def test_an_edited_history_is_sent_as_it_was_edited(seed: int) -> None:
    random = Random(seed)
    conversation = _Conversation(draw_model(random), random)
    for _ in range(3):
        conversation.answer()
        conversation.next_prompt()
    place = random.choice([at for at, each in enumerate(conversation.messages) if not each.get("tool_calls")])
    conversation.messages[place] = {**conversation.messages[place], "content": "edited 9"}
    aligned = conversation.next_prompt()
    text = conversation.vocabulary.text(aligned.token_ids).decode()
    assert not aligned.is_whole
    expected = conversation.model.text(conversation.messages)
    assert text[text.index("edited 9") :].split() == expected[expected.index("edited 9") :].split() or any(
        message.get("tool_calls") for message in conversation.messages[place:]
    )
