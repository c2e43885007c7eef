"""Names by which apps call a served model: an app whose source names ``gpt-4o-mini`` is moved to a model unchanged.

Invariant: a further name belongs to one model. The name of a deployed model is its own, and a version
(``NAME@VERSION``) has no further name. The answer and its capture name the version that answered.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir

_MOST_CHARACTERS: Final = 128


class ModelNames:
    """``gateway/model_names.json``: the model that answers to each further name.

    Args:
        data_dir: The data directory.
        is_deployed: Whether a model of this name is deployed.

    Raises:
        ConfigurationError: The file is damaged.
    """

    def __init__(self, data_dir: DataDir, is_deployed: Callable[[str], bool] = lambda _: False) -> None:
        self._data_dir = data_dir
        self._is_deployed = is_deployed
        self._path = data_dir.gateway / "model_names.json"
        self._models = self._read()

    def resolve(self, name: str) -> str:
        """Return the model that answers to ``name``; the name itself where it is no further name."""
        model = self._models.get(name)
        return name if model is None or self._is_deployed(name) else model

    @property
    def models(self) -> dict[str, tuple[str, ...]]:
        """Model → its further names."""
        return {model: self.of(model) for model in self._models.values()}

    def of(self, model: str) -> tuple[str, ...]:
        """Return the further names of a model."""
        return tuple(name for name, each in self._models.items() if each == model)

    def set(self, model: object, names: object) -> None:
        """Replace the further names of a model; a name of another model moves to this one.

        Raises:
            ConfigurationError: They are no names.
            DataDirectoryError: They cannot be stored.
        """
        if not isinstance(model, str) or not model or "@" in model:
            raise ConfigurationError(f"'model' must be the name of a model without a version, got {model!r}.")
        if not isinstance(names, list):
            raise ConfigurationError(f"'names' must be a list of names, got {names!r}.")
        checked = [_checked(each) for each in cast("list[object]", names)]
        others = {name: each for name, each in self._models.items() if each != model and name not in checked}
        models = others | dict.fromkeys(checked, model)
        self._data_dir.write(self._path, json.dumps(models, indent=1) + "\n")
        self._models = models

    def _read(self) -> dict[str, str]:
        try:
            document: Any = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise _damaged(self._path, error) from error
        if not isinstance(document, dict):
            raise _damaged(self._path, "expected an object")
        return {str(name): str(model) for name, model in cast("dict[str, object]", document).items()}


def _checked(name: object) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= _MOST_CHARACTERS or "@" in name:
        raise ConfigurationError(
            f"{name!r} cannot be a further name of a model: expected 1 to {_MOST_CHARACTERS} characters without '@', "
            "which versions have."
        )
    return name


def _damaged(path: Path, reason: object) -> ConfigurationError:
    return ConfigurationError(
        f"{path} is damaged: {reason}.", next_step="Remove it, and deploy with --called again: spanloop models deploy"
    )
