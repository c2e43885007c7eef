"""What a job needs to know of its base model, read from the folder's JSON files; no torch, no transformers."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from spanloop.semconv.errors import JobError


class BaseModelFacts(NamedTuple):
    """One registered model folder that can be trained."""

    reference: str
    """``name@version``."""
    path: Path
    vocabulary_size: int
    context_tokens: int


def read_base_model(reference: str, path: Path) -> BaseModelFacts:
    """Check the Hugging Face folder ``path`` and read its limits.

    Raises:
        JobError: A file, the end-of-sequence token or the chat template is missing.
    """
    config = _json(reference, path / "config.json")
    tokenizer = _json(reference, path / "tokenizer_config.json")
    if not tokenizer.get("eos_token"):
        raise JobError(
            f"Model {reference} ({path}) has no eos_token in tokenizer_config.json: where a turn ends is unknown.",
            next_step="Set eos_token to the token that ends a turn, and add the model again: spanloop models add.",
        )
    if not tokenizer.get("chat_template") and not (path / "chat_template.jinja").exists():
        raise JobError(
            f"Model {reference} ({path}) has no chat template: got neither chat_template.jinja nor chat_template in "
            "tokenizer_config.json.",
            next_step="Use an instruction-tuned model, or write a template, and add it again: spanloop models add.",
        )
    text = config.get("text_config") or config
    return BaseModelFacts(
        reference=reference,
        path=path,
        vocabulary_size=_positive(reference, text, "vocab_size"),
        context_tokens=_positive(reference, text, "max_position_embeddings"),
    )


def _json(reference: str, path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise JobError(
            f"Model {reference} has no readable {path}: {error}.",
            next_step="Add a complete Hugging Face folder: spanloop models add.",
        ) from error
    return dict(content)


def _positive(reference: str, config: dict[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value < 1:
        raise JobError(f"Model {reference}: config.json has {key} {value!r}, expected a positive number.")
    return value
