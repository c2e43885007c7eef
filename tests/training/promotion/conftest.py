"""Registered versions of one model, and a stand-in for the gateway that serves them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from spanloop.foundation.paths import DataDir
from spanloop.training.models.registry import Registry

from ..gateway_stand_in import GatewayStandIn, gateway_stand_in


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    """Weights that the gateway serves as they are: they name an output layer."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}, "merges": []}, "added_tokens": []}')
    header = json.dumps({"lm_head.weight": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    return folder


@pytest.fixture
def registry(data_dir: DataDir, model_folder: Path) -> Registry:
    """``m@v1`` to ``m@v4``, each trained from the one before."""
    found = Registry(data_dir)
    parent = None
    for _ in range(4):
        parent = found.add("m", model_folder, parent=parent).reference
    return found


@pytest.fixture
def gateway(data_dir: DataDir) -> Iterator[GatewayStandIn]:
    with gateway_stand_in(data_dir) as stand_in:
        stand_in.served = "m@v4"
        yield stand_in
