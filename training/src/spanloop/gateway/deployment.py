"""Which weights are deployed, where they lie, and whether an engine can take them without a restart."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self, cast

from spanloop.datadir import DataDir
from spanloop.semconv.errors import ConfigurationError, SpanloopError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")
_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_WEIGHTS: Final = ("*.safetensors", "*.bin", "*.gguf")
_TEXT_FILES: Final = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "merges.txt", "special_tokens_map.json",
    "added_tokens.json", "chat_template.jinja", "chat_template.json", "generation_config.json",
)  # fmt: skip
_IDLE_CONFIG_KEYS: Final = frozenset({"_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache"})


@dataclass(frozen=True, slots=True)
class Deployment:
    """One version of a model in one folder."""

    name: str
    version: str
    path: str
    """Absolute path of a Hugging Face folder, as the engine sees it."""

    @property
    def label(self) -> str:
        """``name@version``: what captures and answers say."""
        return f"{self.name}@{self.version}"

    @classmethod
    def parse(cls, document: object) -> Self:
        """Check what a deploy request or ``deployment.json`` holds.

        Raises:
            ConfigurationError: A field is missing or malformed.
        """
        fields = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
        name, version, path = (fields.get(key) for key in ("name", "version", "path"))
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigurationError(f"'name' of a deployment must match {_NAME.pattern}, got {name!r}.")
        if not isinstance(version, str) or not _VERSION.fullmatch(version):
            raise ConfigurationError(f"'version' of a deployment must match {_VERSION.pattern}, got {version!r}.")
        if not isinstance(path, str) or not Path(path).is_absolute():
            raise ConfigurationError(f"'path' of a deployment must be an absolute path, got {path!r}.")
        return cls(name, version, path)


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """What decides whether two folders differ in nothing but their weights."""

    config_digest: str
    """Of the configuration without the keys that do not change the network."""
    text_digest: str
    """Of tokenizer, chat template and generation configuration, which the engine read once at its start."""
    is_untied: bool
    """The configuration says outright that input and output embeddings are separate."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Look into a folder.

        Raises:
            ConfigurationError: There is no such folder, or it holds no model.
        """
        if not path.is_dir():
            raise ConfigurationError(
                f"The model folder {path} does not exist.", next_step="deploy another version: spanloop models list"
            )
        try:
            config = json.loads((path / "config.json").read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"{path} is not a model folder: its config.json cannot be read: {error}."
            ) from error
        if not isinstance(config, dict) or not any(any(path.glob(pattern)) for pattern in _WEIGHTS):
            raise ConfigurationError(f"{path} is not a model folder: expected config.json and {' or '.join(_WEIGHTS)}.")
        fields = cast("dict[str, Any]", config)
        kept = {key: value for key, value in fields.items() if key not in _IDLE_CONFIG_KEYS}
        digest = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
        return cls(digest, _text_digest(path), fields.get("tie_word_embeddings") is False)

    def can_swap_to(self, other: "ModelFolder") -> bool:
        """Whether an engine that serves this folder can load the other's weights in place.

        With tied embeddings vLLM reloads the input embedding and silently keeps the old output layer, so anything
        that is not surely untied is restarted.
        """
        return self == other and self.is_untied


def _text_digest(path: Path) -> str:
    text = hashlib.sha256()
    for name in _TEXT_FILES:
        file = path / name
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            content = b"\0absent"
        except OSError as error:
            raise ConfigurationError(f"{file} cannot be read: {error.strerror}.") from error
        text.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
    return text.hexdigest()


class DeploymentFile:
    """``gateway/deployment.json``: the last deployment that answered."""

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        self.path = data_dir.gateway / "deployment.json"

    def read(self) -> Deployment | None:
        """The last deployment; None when there never was one.

        Raises:
            ConfigurationError: The file is damaged.
        """
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        try:
            return Deployment.parse(json.loads(text))
        except (ValueError, SpanloopError) as error:
            raise ConfigurationError(
                f"{self.path} is damaged: {error}", next_step="deploy again: spanloop models deploy NAME"
            ) from error

    def write(self, deployment: Deployment) -> None:
        """Replace the file atomically and durably.

        Raises:
            DataDirectoryError: The disk refused.
        """
        self._data_dir.write(self.path, json.dumps(asdict(deployment), indent=1) + "\n")
