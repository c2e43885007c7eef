"""A model folder's vocabulary and special tokens, read from its JSON files, and a copy of the folder with other tokens.

Overrides never change the folder: a temporary folder links to its files and replaces the few that differ.
"""

import json
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from spanloop.foundation.errors import ConfigurationError, JobError

THINKING: Final = "thinking"
"""Key of ``tokenizer_config.json``: ``keep`` where prompts keep the thinking that the chat template drops."""
_ROLES: Final = ("bos_token", "eos_token", "pad_token", "unk_token")


class TokenizerInfo(NamedTuple):
    """The vocabulary and special tokens of a model."""

    config: Mapping[str, Any]
    """The content of ``config.json``."""
    vocabulary_size: int | None
    """``vocab_size`` of the configuration, of its text part for a multimodal model; None if not set."""
    tokens: Mapping[str, int]
    """Ids by token; empty for a tokenizer without ``tokenizer.json``."""
    added_tokens: tuple[str, ...]
    """Tokens that are split off before tokenization."""
    special_tokens: Mapping[str, str]
    """``bos_token``, ``eos_token``, ``pad_token``, ``unk_token``, if set."""
    end_tokens: tuple[str, ...]
    """Tokens that end generation: the tokenizer's and those of the generation configuration."""
    thinking: str = ""
    """``keep`` where prompts keep the thinking of earlier turns; empty where the chat template decides."""

    @property
    def eos_token(self) -> str | None:
        """The tokenizer's end-of-sequence token."""
        return self.special_tokens.get("eos_token")

    @property
    def pad_token(self) -> str | None:
        """The tokenizer's pad token."""
        return self.special_tokens.get("pad_token")


def read_tokenizer_info(folder: Path) -> TokenizerInfo:
    """Read the JSON files of a Hugging Face folder.

    Raises:
        JobError: A file is damaged, or there is no tokenizer.
    """
    config = read_json(folder / "config.json")
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")):
        raise JobError(
            f"{folder} has no tokenizer: expected tokenizer.json.", next_step="Get a complete copy of the model."
        )
    tokenizer = _read_optional(folder / "tokenizer.json")
    added = {entry["content"]: int(entry["id"]) for entry in tokenizer.get("added_tokens", [])}
    tokens = _vocabulary(tokenizer) | added
    fields = _read_optional(folder / "special_tokens_map.json") | _read_optional(folder / "tokenizer_config.json")
    special = {role: _token(fields[role]) for role in _ROLES if fields.get(role)}
    text = config.get("text_config") or config
    size = text.get("vocab_size")
    return TokenizerInfo(
        config=config,
        vocabulary_size=size if isinstance(size, int) else None,
        tokens=tokens,
        added_tokens=tuple(added),
        special_tokens=special,
        end_tokens=_end_tokens(folder, text, tokens, special),
        thinking=str(fields.get(THINKING) or ""),
    )


@contextmanager
def folder_with_overrides(
    folder: Path, *, chat_template: Path | None = None, eos: str = "", pad: str = "", thinking: str = ""
) -> Generator[Path]:
    """Yield the folder with another chat template, end-of-turn token or pad token, in a temporary copy if needed.

    Args:
        folder: A model folder.
        chat_template: Jinja file that replaces its chat templates.
        eos: Token that ends a turn; empty for its own.
        pad: Padding token; empty for its own.
        thinking: ``keep`` keeps the thinking of earlier turns in prompts; empty leaves it to the template.

    Raises:
        ConfigurationError: The template cannot be read, or a token is not in the vocabulary.
        JobError: A file of the folder is damaged.
    """
    if chat_template is None and not eos and not pad and not thinking:
        yield folder
        return
    changed = _changed_token_files(folder, eos=eos, pad=pad)
    if chat_template is not None or thinking:
        fields = changed.get("tokenizer_config.json") or _read_optional(folder / "tokenizer_config.json")
        kept = {key: value for key, value in fields.items() if chat_template is None or key != "chat_template"}
        changed["tokenizer_config.json"] = kept | ({THINKING: thinking} if thinking else {})
    with tempfile.TemporaryDirectory(prefix="spanloop-model-") as temporary:
        copy = Path(temporary)
        for file in (path for path in folder.rglob("*") if path.is_file()):
            relative_path = file.relative_to(folder)
            if str(relative_path) in changed or (chat_template is not None and "chat_template" in str(relative_path)):
                continue
            (copy / relative_path).parent.mkdir(parents=True, exist_ok=True)
            (copy / relative_path).symlink_to(file.resolve())
        for name, fields in changed.items():
            (copy / name).write_text(json.dumps(fields, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        if chat_template is not None:
            (copy / "chat_template.jinja").write_text(_template_text(chat_template), encoding="utf-8")
        yield copy


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        JobError: The file cannot be read or has no JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        fields: dict[str, Any] = dict(content)
    except (OSError, ValueError, TypeError) as error:
        raise JobError(
            f"{path} cannot be read: {error}.", next_step="Get a complete copy of the model and add it again."
        ) from error
    return fields


def _read_optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _vocabulary(tokenizer: Mapping[str, Any]) -> dict[str, int]:
    vocabulary: Any = tokenizer.get("model", {}).get("vocab", {})
    if isinstance(vocabulary, list):
        # A unigram model: pairs of token and score, in the order of ids.
        pairs = cast("Sequence[Any]", vocabulary)
        return {str(pair[0]): index for index, pair in enumerate(pairs)}
    return dict(vocabulary)


def _token(value: Any) -> str:
    """Return a token that is written as text or as an object with its content."""
    return str(cast("dict[str, Any]", value)["content"]) if isinstance(value, dict) else str(value)


def _end_tokens(
    folder: Path, config: Mapping[str, Any], tokens: Mapping[str, int], special: Mapping[str, str]
) -> tuple[str, ...]:
    tokenizer_tokens = [special["eos_token"]] if "eos_token" in special else []
    generation = folder / "generation_config.json"
    value: Any = (read_json(generation) if generation.is_file() else config).get("eos_token_id")
    ids = cast("Sequence[Any]", value) if isinstance(value, list) else [value]
    names = {index: token for token, index in tokens.items() if index in ids}
    return tuple(dict.fromkeys([*tokenizer_tokens, *(names[index] for index in ids if index in names)]))


def _changed_token_files(folder: Path, *, eos: str, pad: str) -> dict[str, dict[str, Any]]:
    """Return the contents of the files that change, by name."""
    overrides = {role: token for role, token in (("eos_token", eos), ("pad_token", pad)) if token}
    if not overrides:
        return {}
    text = read_tokenizer_info(folder)
    for role, token in overrides.items():
        if token not in text.tokens:
            raise ConfigurationError(
                f"{token!r} is not a token of the model in {folder}, so it cannot be its {role}.",
                next_step=f"Use one of: {' '.join(text.added_tokens[:20])}",
            )
    ids = {f"{role}_id": text.tokens[token] for role, token in overrides.items()}
    config = dict(text.config) | ids
    if isinstance(nested := config.get("text_config"), dict):
        config["text_config"] = {**nested, **ids}
    changed = {
        "config.json": config,
        "generation_config.json": _read_optional(folder / "generation_config.json") | ids,
        "tokenizer_config.json": _read_optional(folder / "tokenizer_config.json") | overrides,
    }
    if (folder / "special_tokens_map.json").is_file():
        changed["special_tokens_map.json"] = _read_optional(folder / "special_tokens_map.json") | overrides
    return changed


def _template_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"The chat template {path} cannot be read: {error}.", next_step="Pass a file with a Jinja template."
        ) from error
