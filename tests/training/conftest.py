"""A tiny model, made once, and a runner on a data directory that has it registered."""

import os
from pathlib import Path

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


@pytest.fixture
def runner(data_dir: DataDir, address: Address, store: Store, tiny_model: Path) -> Runner:
    """``tiny@v1`` is registered."""
    assert store.database == address.database
    Registry(data_dir).add("tiny", tiny_model)
    return Runner(data_dir, address)
