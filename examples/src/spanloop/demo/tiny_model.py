# pyright: basic, reportPrivateImportUsage=false
"""Build a model of about 100,000 parameters, its tokenizer and its chat template in seconds.

With it the whole loop runs for real in two minutes: vLLM serves it, it emits well-formed tool calls that are often
wrong, and verl trains it. It is an ordinary Hugging Face folder, without special cases elsewhere. A few seconds of
next-token training on generated conversations (``shop.py``) teach it the scripted shop and nothing else.

Its embeddings are not tied, so that new weights can be loaded into a running engine.
"""

import json
import random
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from .shop import TOOLS, Message, conversation

MAX_POSITIONS: Final = 1024
_VOCABULARY_SIZE: Final = 400
_TRAINING_STEPS: Final = 160
_BATCH_ROWS: Final = 24

PAD, BOS, EOS = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
_PAD_ID, _BOS_ID, _EOS_ID = 0, 1, 2
_ADDED: Final = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")

CHAT_TEMPLATE: Final = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + ('user' if message['role'] == 'tool' else message['role']) + '\\n' }}"
    "{%- if message['role'] == 'tool' %}{{- '<tool_response>' + message['content'] + '</tool_response>' }}"
    "{%- else %}{{- message['content'] or '' }}"
    "{%- for call in message['tool_calls'] or [] %}"
    "{{- '<tool_call>{\"name\": ' + (call.function.name | tojson) + ', \"arguments\": ' }}"
    "{{- call.function.arguments if call.function.arguments is string else (call.function.arguments | tojson) }}"
    "{{- '}</tool_call>' }}{%- endfor %}{%- endif %}"
    "{%- if loop.first and message['role'] == 'system' and tools %}"
    "{%- for tool in tools %}{{- '\\n' + tool.function.name + ': ' + tool.function.description }}{%- endfor %}"
    "{%- endif %}"
    "{{- '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


def build_tiny_model(path: Path, *, seed: int = 0, training_steps: int = _TRAINING_STEPS) -> int:
    """Write the model, tokenizer, chat template and generation config to the folder ``path``.

    Args:
        path: The folder to create; existing files are overwritten.
        seed: The same seed on the same machine gives the same weights.
        training_steps: Steps of next-token training, about 50 ms each; 0 leaves random weights.

    Returns:
        The number of parameters.
    """
    rng = random.Random(seed)
    torch.manual_seed(seed)
    tokenizer = _tokenizer([_render_plain(conversation(rng)) for _ in range(400)])
    model = LlamaForCausalLM(_config(len(tokenizer)))
    with _one_thread():
        _train(model, tokenizer, rng, training_steps)
    path.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return int(model.num_parameters())


@contextmanager
def _one_thread() -> Generator[None]:
    """Limit torch to one thread: such small matrices gain nothing from a second, and lose eightfold on a busy CPU."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _render_plain(messages: list[Message]) -> str:
    """Return raw text for the tokenizer's training; it only has to be representative, because it decides the merges."""
    return json.dumps(messages, ensure_ascii=False) + "\n".join(f"{tool.name}: {tool.description}" for tool in TOOLS)


def _tokenizer(corpus: list[str]) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY_SIZE - len(_ADDED),
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(corpus, trainer)
    # Not special tokens: a decoded response must contain them, or the parser would find no tool call.
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in _ADDED])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        unk_token=PAD,
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_POSITIONS,
        chat_template=CHAT_TEMPLATE,
    )


def _config(vocabulary_size: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=vocabulary_size,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=False,
        pad_token_id=_PAD_ID,
        bos_token_id=_BOS_ID,
        eos_token_id=_EOS_ID,
    )


def _train(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, rng: random.Random, training_steps: int
) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=max(1, training_steps))
    model.train()
    # The shop has few conversations. Rendering each of them once saves two seconds.
    rendered: dict[str, list[int]] = {}
    for _ in range(training_steps):
        rows = [_row(tokenizer, rng, rendered) for _ in range(_BATCH_ROWS)]
        input_ids = _padded(rows, _PAD_ID)
        labels = _padded(rows, -100)
        loss = model(input_ids=input_ids, attention_mask=(labels != -100).long(), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.eval()


def _row(tokenizer: PreTrainedTokenizerFast, rng: random.Random, rendered: dict[str, list[int]]) -> list[int]:
    messages = conversation(rng)
    key = json.dumps(messages)
    if key not in rendered:
        render: Any = tokenizer.apply_chat_template  # its annotations exclude tool calls, which it renders well
        rendered[key] = render(messages, tools=[tool.definition() for tool in TOOLS], return_dict=False)
    return rendered[key]


def _padded(rows: list[list[int]], fill: int) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [fill] * (width - len(row)) for row in rows])
