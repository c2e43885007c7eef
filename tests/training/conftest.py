"""A tiny model, made once, and a runner on a data directory that has it registered."""

import copy
import importlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from spanloop.demo.tiny_model import build_tiny_model
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.store.client import Address
from spanloop.training.models.registry import Registry

from .training_running import Runner

# verl decides for a device when it is first imported, and other test modules import it before `debug_training` trains.
os.environ |= {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": "spanloop.training.verl_plugin.engine.cpu_platform"}


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights: what matters here is that they change."""
    path = tmp_path_factory.mktemp("tiny") / "model"
    build_tiny_model(path, training_steps=0)
    return path


@pytest.fixture(autouse=True, scope="session")
def _configuration_files_are_parsed_once() -> Iterator[None]:
    """Keep the content of verl's YAML files, whose parsing takes half of the time of composing a configuration."""
    source: Any = importlib.import_module("hydra._internal.core_plugins.file_config_source").FileConfigSource
    load = cache(source.load_config)
    sources: dict[str, Any] = {}

    def load_copy(reader: Any, config_path: str) -> Any:
        # Each composition makes its own readers; one that was used for a folder reads the same files.
        return copy.deepcopy(load(sources.setdefault(f"{reader.provider} {reader.path}", reader), config_path))

    with patch.object(source, "load_config", load_copy):
        yield


@pytest.fixture
def runner(data_dir: DataDir, address: Address, store: Store, tiny_model: Path) -> Runner:
    """``tiny@v1`` is registered."""
    assert store.database == address.database
    Registry(data_dir).add("tiny", tiny_model)
    return Runner(data_dir, address)
