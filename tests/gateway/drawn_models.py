"""Tokenizers and chat templates that are drawn: random vocabularies and marks, and the behaviours of known families."""
# tokenizers is only partly typed, and a stand-in's documents are JSON.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import json
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from .chat_templates import compiled

LETTERS: Final = 'abcdefgh éß🙂日\n{}[]":,.0159'
THINKING: Final = ("none", "dropped", "emptied", "kept")
"""Of turns before the last user message: there is none, it is dropped (Qwen3), emptied (GLM) or kept."""
_TEMPLATE: Final = """{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for m in messages %}{{ d.begin }}{{ m.role }}{{ d.separator }}
{%- if m.role == 'assistant' and d.thinking != 'none' %}
{%- set shown = m.reasoning and (d.thinking == 'kept' or loop.index0 > ns.last) %}
{%- if shown or d.thinking == 'emptied' %}{{ d.think }}{{ m.reasoning if shown else '' }}{{ d.end_think }}{%- endif %}
{%- endif %}{{ (m.content | trim) if d.trims else m.content }}
{%- for c in m.tool_calls or [] %}{{ d.call }}{{ written(c) }}{{ d.end_call }}{%- endfor %}{{ d.end }}{{ d.between }}
{%- endfor %}{%- if add_generation_prompt %}{{ d.begin }}assistant{{ d.separator }}{%- endif %}"""


@dataclass(frozen=True)
class DrawnModel:
    """One tokenizer and template."""

    tokenizer: Tokenizer
    begin: str
    end: str
    separator: str
    between: str
    think: str
    end_think: str
    call: str
    end_call: str
    arguments_key: str
    thinking: str
    trims: bool

    @property
    def end_of_turn(self) -> str:
        return self.end

    def text(self, messages: list[dict[str, Any]]) -> str:
        """The rendering of a chat."""
        return compiled(_TEMPLATE).render(messages=messages, d=self, written=self.written, add_generation_prompt=True)

    def written(self, call: dict[str, Any]) -> str:
        """A call as the template writes it."""
        function = call["function"]
        return json.dumps({"name": function["name"], self.arguments_key: json.loads(function["arguments"])})

    def encode(self, text: str) -> list[int]:
        """The tokenizer's own tokens."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def ids(self, messages: list[dict[str, Any]]) -> list[int]:
        return self.encode(self.text(messages))

    def sampled(self, text: str, random: Random) -> list[int]:
        """Tokens of a text as a model may sample them: any pieces of it, not the tokenizer's."""
        ids: list[int] = []
        added = set(self.tokenizer.get_added_tokens_decoder())
        for token_id in self.encode(text):
            piece = self.tokenizer.id_to_token(token_id)
            while piece and token_id not in added:
                lengths = [n for n in range(1, len(piece) + 1) if self.tokenizer.token_to_id(piece[:n]) is not None]
                length = random.choice(lengths)
                ids.append(self.tokenizer.token_to_id(piece[:length]))
                piece = piece[length:]
            ids += [token_id] if token_id in added else []
        return ids

    def answer(self, random: Random, content: str, *, reasoning: str, arguments: dict[str, Any] | None) -> str:
        """What the model writes for a message."""
        text = f"{self.think}{reasoning}{self.end_think}{content}" if self.thinking != "none" else content
        if arguments is None:
            return text
        indent = random.choice([None, 1])
        body = {"name": "find", self.arguments_key: arguments}
        return f"{text}{self.call}{json.dumps(body, indent=indent, ensure_ascii=random.random() < 0.5)}{self.end_call}"


def words(random: Random, count: int) -> str:
    """Random words."""
    return " ".join("".join(random.choices(LETTERS, k=random.randint(1, 8))) for _ in range(count))


def draw_model(random: Random, thinking: str | None = None) -> DrawnModel:
    """Draw a tokenizer and a template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=random.randint(280, 600),
        special_tokens=[],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    corpus = [words(random, 20) for _ in range(20)] * 3 + ['{"name": "find", "arguments": {"a": 1}}', "assistant user"]
    tokenizer.train_from_iterator(corpus, trainer)
    marks = [f"<{number}{''.join(random.choices('xyz|', k=4))}>" for number in range(6)]
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in marks[:2]])
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in marks[2:]])
    behaviour = thinking or random.choice(THINKING)
    # An emptied block has no white space in it, as GLM's: two lines of it may be one token.
    margin = "" if behaviour == "emptied" else random.choice(["", "\n"])
    gap = random.choice(["", "\n", "\n\n"])
    return DrawnModel(
        tokenizer,
        begin=marks[0],
        end=marks[1],
        separator=random.choice(["", "\n", "\n\n", ": "]),
        between=random.choice(["", "\n"]),
        think=marks[2] + margin,
        end_think=margin + marks[3] + gap,
        call=random.choice(["", "\n"]) + marks[4],
        end_call=marks[5],
        arguments_key=random.choice(["arguments", "parameters"]),
        thinking=behaviour,
        trims=random.random() < 0.3,
    )
