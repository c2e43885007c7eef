"""A tiny model, made once, and a runner on a data directory that has it registered."""

import importlib
import os
import pickle
from collections.abc import Callable, Hashable, Iterator
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
def _verl_configuration_is_read_once() -> Iterator[None]:
    """Let Hydra read and merge verl's files once; overrides are applied, and values resolved, for each job.

    Copies are made by pickle, which takes a seventh of the time of OmegaConf's.
    """
    # Hydra imports its plug-ins a second time: the class that an earlier import returned is not the one that it uses.
    importlib.import_module("hydra.core.plugins").Plugins.instance()
    source: Any = importlib.import_module("hydra._internal.core_plugins.file_config_source").FileConfigSource
    loader: Any = importlib.import_module("hydra._internal.config_loader_impl").ConfigLoaderImpl
    load, merge = source.load_config, loader._compose_config_from_defaults_list
    made: dict[Hashable, bytes] = {}

    def once(key: Hashable, make: Callable[[], Any]) -> Any:
        if key not in made:
            made[key] = pickle.dumps(make())
        return pickle.loads(made[key])

    def load_once(self: Any, config_path: str) -> Any:
        return once((self.path, config_path), lambda: load(self, config_path))

    def merge_once(self: Any, defaults: list[Any], repo: Any) -> Any:
        sources = tuple((each.provider, each.path) for each in repo.get_sources())
        return once((sources, *map(repr, defaults)), lambda: merge(self, defaults, repo))

    with (
        patch.object(source, "load_config", load_once),
        patch.object(loader, "_compose_config_from_defaults_list", merge_once),
    ):
        yield


@pytest.fixture
def runner(data_dir: DataDir, address: Address, store: Store, tiny_model: Path) -> Runner:
    """``tiny@v1`` is registered."""
    assert store.database == address.database
    Registry(data_dir).add("tiny", tiny_model)
    return Runner(data_dir, address)
