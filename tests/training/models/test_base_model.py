import json
import shutil
from pathlib import Path

import pytest

from spanloop.demo.tiny_model import MAX_POSITIONS
from spanloop.foundation.errors import JobError
from spanloop.training.models.base_model import BaseModelFacts, read_base_model
from spanloop.training.models.files.tokenizer_fingerprint import tokenizer_fingerprint


@pytest.fixture
def model(tiny_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def test_limits_come_from_the_config(model: Path) -> None:
    size = json.loads((model / "config.json").read_text())["vocab_size"]
    expected = BaseModelFacts("m@v1", model, size, MAX_POSITIONS, tokenizer_fingerprint(model))
    assert read_base_model("m@v1", model) == expected


def test_a_limit_that_is_none_is_named(model: Path) -> None:
    config = json.loads((model / "config.json").read_text()) | {"max_position_embeddings": None}
    (model / "config.json").write_text(json.dumps(config))
    with pytest.raises(JobError, match="max_position_embeddings None"):
        read_base_model("m@v1", model)


def test_a_model_that_cannot_work_is_refused(model: Path) -> None:
    (model / "chat_template.jinja").unlink()
    with pytest.raises(JobError, match=r"m@v1 cannot be used: .* no chat template"):
        read_base_model("m@v1", model)


def test_an_unreadable_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"config\.json"):
        read_base_model("m@v1", tmp_path)
