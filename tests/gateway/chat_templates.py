"""A small tokenizer, and chat templates that behave as those of known model families."""
# tokenizers is only partly typed, and a stand-in's documents are JSON.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from jinja2 import Environment, Template
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

MARKS: Final = (
    "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<|start_header_id|>",
    "<|end_header_id|>", "<|eot_id|>", "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|user|>",
    "<|assistant|>", "<|observation|>", "<|system|>",
)  # fmt: skip
_CALLS: Final = """{%- for c in m.tool_calls or [] %}
<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments }}}
</tool_call>{% endfor %}"""
_CHATML: Final = (
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}" + _CALLS + "<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_LAST_USER: Final = """{%- set ns = namespace(last=0) %}
{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}"""
TEMPLATES: Final = {
    "qwen2.5": (_CHATML, "<|im_end|>", ""),
    "smollm2": (_CHATML.replace(_CALLS, ""), "<|im_end|>", ""),
    "qwen3": (  # thinking of turns before the last user message is dropped
        _LAST_USER + "{%- for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% if m.role == 'assistant' and m.reasoning and loop.index0 > ns.last %}<think>\n{{ m.reasoning }}\n</think>"
        "\n\n{% endif %}{{ m.content or '' }}" + _CALLS + "<|im_end|>\n{% endfor %}"
        "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        "<|im_end|>",
        "<think>\n{}\n</think>\n\n",
    ),
    "llama3": (  # contents are trimmed
        "{%- for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ (m.content or '') | trim }}"
        + _CALLS + "<|eot_id|>{% endfor %}"
        "{%- if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
        "<|eot_id|>",
        "",
    ),
    "gpt-oss": (  # the end of a last turn has another token when it becomes history; thinking is dropped
        "{%- for m in messages %}<|start|>{{ m.role }}<|channel|>final<|message|>{{ m.content or '' }}" + _CALLS
        + "<|end|>{% endfor %}{%- if add_generation_prompt %}<|start|>assistant{% endif %}",
        "<|return|>",
        "<|channel|>analysis<|message|>{}<|end|><|start|>assistant",
    ),
    "glm": (
        _LAST_USER + "{%- for m in messages %}{% if m.role == 'tool' %}<|observation|>\n{{ m.content }}"
        "{% else %}<|{{ m.role }}|>\n{% if m.role == 'assistant' %}<think>"
        "{{ m.reasoning if m.reasoning and loop.index0 > ns.last else '' }}</think>\n{% endif %}"
        "{{ m.content or '' }}" + _CALLS + "{% endif %}{% endfor %}"
        "{%- if add_generation_prompt %}<|assistant|>\n{% endif %}",
        "<|user|>",
        "<think>{}</think>\n",
    ),
}  # fmt: skip
"""Template, the token that ends a turn, and the form of thinking, by the family that it behaves as."""


def make_tokenizer(marks: Sequence[str] = MARKS) -> Tokenizer:
    """A byte-level BPE tokenizer with some merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=[], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    words = 'the assistant user tool system weather arguments name city Paris found nothing here \n {} " : , and then '
    tokenizer.train_from_iterator([words * 20, '{"name": "find", "arguments": {"city": "Paris"}}' * 20], trainer)
    for mark in marks:
        is_special = "think" not in mark and "tool" not in mark
        token = AddedToken(mark, special=is_special, normalized=False)
        (tokenizer.add_special_tokens if is_special else tokenizer.add_tokens)([token])
    return tokenizer


@cache
def compiled(template: str) -> Template:
    """A template, which is compiled once: that takes longer than a rendering."""
    return Environment(autoescape=False, keep_trailing_newline=True).from_string(template)


class Renderer:
    """Renders messages as an engine does."""

    def __init__(self, tokenizer: Tokenizer, family: str) -> None:
        template, self.end_of_turn, self.thinking = TEMPLATES[family]
        self._template = compiled(template)
        self._tokenizer = tokenizer

    def text(self, messages: list[dict[str, Any]], *, add_generation_prompt: bool = True) -> str:
        return self._template.render(messages=messages, add_generation_prompt=add_generation_prompt)

    def ids(self, messages: list[dict[str, Any]]) -> list[int]:
        return self.encode(self.text(messages))

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def by_characters(self, text: str) -> list[int]:
        """Other tokens for the same text: one for each character outside the marks."""
        ids: list[int] = []
        for token_id in self.encode(text):
            piece = self._tokenizer.id_to_token(token_id)
            ids += [token_id] if piece in MARKS else [self._tokenizer.token_to_id(character) for character in piece]
        return ids
