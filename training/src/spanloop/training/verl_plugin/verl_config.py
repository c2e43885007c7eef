# pyright: basic
"""Compose verl's configuration from its YAML files and our overrides."""

from pathlib import Path
from typing import Any

import verl.trainer
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import OmegaConf


def compose(config_name: str, overrides: list[str]) -> Any:
    """Return the resolved ``DictConfig`` of verl's ``config_name`` with ``overrides`` in Hydra's syntax."""
    folder = Path(verl.trainer.__file__).parent / "config"
    with initialize_config_dir(config_dir=str(folder), version_base=None):
        config = hydra_compose(config_name=config_name, overrides=overrides)
    OmegaConf.resolve(config)
    return config
