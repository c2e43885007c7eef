"""Deployments: model, version and folder, and whether an engine can load the weights without a restart."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol, Self, cast

from spanloop.foundation.errors import ConfigurationError, SpanloopError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.paths.checksums import check_folder
from spanloop.semconv.environment import SHARED_DIR_ENV

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")
_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_WEIGHTS: Final = ("*.safetensors", "*.bin", "*.gguf")
_TOKENIZER_FILES: Final = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "merges.txt", "special_tokens_map.json",
    "added_tokens.json", "chat_template.jinja", "chat_template.json", "generation_config.json",
)  # fmt: skip
_IGNORED_CONFIG_KEYS: Final = frozenset({"_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache"})


@dataclass(frozen=True, slots=True)
class Deployment:
    """One version of a model in one folder."""

    name: str
    version: str
    path: str
    """Absolute path of a Hugging Face folder, as the engine sees it."""
    adapter: str = ""
    """Absolute path of a LoRA adapter for these weights, in PEFT's format; empty for the weights alone."""
    tokenizer: str = ""
    """Fingerprint of tokenizer and chat template, which captures carry; empty where nobody said it."""

    @property
    def label(self) -> str:
        """``name@version``, as in captures and responses."""
        return f"{self.name}@{self.version}"

    @classmethod
    def parse(cls, document: object) -> Self:
        """Validate the JSON of a deploy request or of ``deployment.json``.

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
        adapter = fields.get("adapter", "")
        if not isinstance(adapter, str) or (adapter and not Path(adapter).is_absolute()):
            raise ConfigurationError(f"'adapter' of a deployment must be an absolute path, got {adapter!r}.")
        tokenizer = fields.get("tokenizer", "")
        if not isinstance(tokenizer, str):
            raise ConfigurationError(f"'tokenizer' of a deployment must be a text, got {tokenizer!r}.")
        return cls(name, version, path, adapter, tokenizer)


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """Digests of a model folder; equal ones mean that two folders differ only in their weights."""

    config_digest: str
    """Digest of the configuration without the keys that do not change the network."""
    tokenizer_digest: str
    """Digest of tokenizer, chat template and generation configuration, which the engine reads only at its start."""
    is_untied: bool
    """Whether the configuration states that input and output embeddings are separate."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a model folder.

        Raises:
            ConfigurationError: The folder does not exist or holds no model.
        """
        if not path.is_dir():
            raise ConfigurationError(
                f"The model folder {path} does not exist on this host.",
                next_step=f"Mount the shared folder here ({SHARED_DIR_ENV}), or deploy another version: "
                "spanloop models list",
            )
        try:
            config = json.loads((path / "config.json").read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{path} is not a model folder: cannot read its config.json: {error}.") from error
        if not isinstance(config, dict) or not any(any(path.glob(pattern)) for pattern in _WEIGHTS):
            raise ConfigurationError(f"{path} is not a model folder: expected config.json and {' or '.join(_WEIGHTS)}.")
        fields = cast("dict[str, Any]", config)
        network_config = {key: value for key, value in fields.items() if key not in _IGNORED_CONFIG_KEYS}
        digest = hashlib.sha256(json.dumps(network_config, sort_keys=True).encode()).hexdigest()
        return cls(digest, _digest_tokenizer(path), fields.get("tie_word_embeddings") is False)

    def can_swap_to(self, target: "ModelFolder") -> bool:
        """Return whether an engine that serves this folder can load the target's weights in place.

        With tied embeddings vLLM reloads the input embedding and silently keeps the old output layer, so only models
        known to be untied are swapped.
        """
        return self == target and self.is_untied


def read_folder(deployment: Deployment, data_dir: Path) -> ModelFolder:
    """Read the folder of a deployment, and check that its files, and the adapter's, are the registered ones.

    Args:
        deployment: The deployment.
        data_dir: Of the gateway; it remembers which files were checked.

    Raises:
        ConfigurationError: It holds no model.
        DataDirectoryError: A file is missing, incomplete or another one.
    """
    folder = ModelFolder.read(Path(deployment.path))
    for path in filter(None, (deployment.path, deployment.adapter)):
        check_folder(Path(path), DataDir(data_dir).gateway / "checked_models.json")
    return folder


def _digest_tokenizer(path: Path) -> str:
    digest = hashlib.sha256()
    for name in _TOKENIZER_FILES:
        file = path / name
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            content = b"\0absent"
        except OSError as error:
            raise ConfigurationError(f"{file} cannot be read: {error.strerror}.") from error
        digest.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
    return digest.hexdigest()


class LastDeployment(Protocol):
    """Where a lifecycle finds what it served last."""

    def read(self) -> Deployment | None:
        """Return the last deployment; None if there is none. ConfigurationError: it is damaged."""
        ...

    def write(self, deployment: Deployment) -> None:
        """Replace it atomically and durably. DataDirectoryError: it cannot be written."""
        ...


class SharedDeployment:
    """The last deployment, as all engines of a model but the last see it: that one writes it.

    Args:
        file: The last deployment.
    """

    def __init__(self, file: LastDeployment) -> None:
        self._file = file

    def read(self) -> Deployment | None:
        """Return the last deployment; it raises as the file."""
        return self._file.read()

    def write(self, deployment: Deployment) -> None:
        """Leave the writing to the last engine, which gets the deployment after the others."""


def relocated(deployment: Deployment, data_dir: DataDir) -> Deployment:
    """Return a stored deployment with its folders of now, where the data directory was moved or restored elsewhere."""

    def moved(path: str) -> str:
        before, _, copy = path.rpartition("/objects/")
        if before and "/" not in copy:  # a copy of an object, which is fetched again
            return str(data_dir.path / "objects" / copy)
        before, _, within = path.rpartition("/models/")
        folder = data_dir.models / within
        return str(folder) if before and not Path(path).exists() and folder.is_dir() else path

    return replace(deployment, path=moved(deployment.path), adapter=moved(deployment.adapter))


class DeploymentFile:
    """``gateway/deployment.json``: the last successful deployment."""

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        self.path = data_dir.gateway / "deployment.json"

    def read(self) -> Deployment | None:
        """Return the last deployment; None if the file does not exist.

        Raises:
            ConfigurationError: The file is invalid.
        """
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        try:
            deployment = Deployment.parse(json.loads(text))
        except (ValueError, SpanloopError) as error:
            raise ConfigurationError(
                f"{self.path} is damaged: {error}", next_step="deploy again: spanloop models deploy NAME"
            ) from error
        return relocated(deployment, self._data_dir)

    def write(self, deployment: Deployment) -> None:
        """Replace the file atomically and durably.

        Raises:
            DataDirectoryError: The file cannot be written.
        """
        self._data_dir.write(self.path, json.dumps(asdict(deployment), indent=1) + "\n")
