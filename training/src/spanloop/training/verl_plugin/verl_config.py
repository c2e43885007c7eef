# pyright: basic
"""Compose verl's configuration from its YAML files and our overrides."""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, Final

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import OmegaConf

_lock: Final = Lock()
"""Hydra is initialised for the whole process."""


def verl_folder() -> Path:
    """Return the folder of the installed verl, which is not imported.

    Raises:
        ModuleNotFoundError: verl is not installed.
    """
    spec = find_spec("verl")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'verl'", name="verl")
    return Path(spec.origin).parent


def compose(config_name: str, overrides: list[str], raw: Iterable[str] = ()) -> Any:
    """Return the resolved ``DictConfig`` of verl's ``config_name``.

    Args:
        config_name: The file in verl's folder.
        overrides: In Hydra's syntax.
        raw: A user's overrides, applied last; they may add a key.
    """
    folder = verl_folder() / "trainer" / "config"
    with _lock, initialize_config_dir(config_dir=str(folder), version_base=None):
        config = hydra_compose(config_name=config_name, overrides=[*overrides, *(f"++{text}" for text in raw)])
    OmegaConf.resolve(config)
    return config
