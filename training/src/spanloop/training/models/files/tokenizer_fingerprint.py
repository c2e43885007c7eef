"""The fingerprint of a model folder's tokenizer and chat template.

Invariant: two folders have the same fingerprint only when the same token ids mean the same text and the same messages
are rendered to the same prompt, with earlier thinking or without it. How a library writes the files (order of keys,
form of merges) does not count.
"""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spanloop.foundation.errors import JobError

from .chat_template import folder_templates
from .tokenizer_files import read_json, read_tokenizer_info

if TYPE_CHECKING:
    from collections.abc import Sequence

_OTHER_FILES: Final = ("tokenizer.model", "vocab.json", "merges.txt", "vocab.txt", "added_tokens.json")
"""Read only in a folder without ``tokenizer.json``."""


def tokenizer_fingerprint(folder: Path) -> str:
    """Return the SHA-256 of vocabulary, merges, added tokens, chat templates and kept thinking, as hex digits.

    Raises:
        JobError: The folder has no tokenizer, or a file of it is damaged.
    """
    try:
        templates = folder_templates(folder)
    except (OSError, ValueError) as error:
        raise JobError(
            f"The chat template in {folder} cannot be read: {error}.", next_step="Get a complete copy of the model."
        ) from error
    info = read_tokenizer_info(folder)
    content = {
        "tokens": sorted((index, token) for token, index in info.tokens.items()),
        "added": sorted(info.added_tokens),
        "merges": _merges(folder / "tokenizer.json"),
        "files": {} if info.tokens else _digests(folder),
        # jinja drops one newline at the end of a template
        "templates": {name: text.removesuffix("\n") for name, text in templates.items()},
    }
    # Without the choice, the fingerprint is that of captures from before there was one.
    choice = {"thinking": info.thinking} if info.thinking else {}
    text = json.dumps(content | choice, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _merges(path: Path) -> list[list[str]]:
    """Return the merges as pairs; older files join each pair by a space."""
    if not path.is_file():
        return []
    merges: Sequence[str | Sequence[str]] = read_json(path).get("model", {}).get("merges") or []
    return [merge.split(" ", 1) if isinstance(merge, str) else list(merge) for merge in merges]


def _digests(folder: Path) -> dict[str, str]:
    files = [folder / name for name in _OTHER_FILES if (folder / name).is_file()]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
