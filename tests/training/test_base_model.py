import json
from pathlib import Path
from typing import Any

import pytest

from spanloop.semconv.errors import JobError
from spanloop.training.base_model import BaseModelFacts, read_base_model

CONFIG = {"vocab_size": 400, "max_position_embeddings": 1024}
TOKENIZER = {"eos_token": "<|im_end|>", "chat_template": "{{ messages }}"}


def write(folder: Path, config: dict[str, Any], tokenizer: dict[str, Any]) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return folder


def test_limits_come_from_the_config(tmp_path: Path) -> None:
    write(tmp_path, CONFIG, TOKENIZER)
    assert read_base_model("m@v1", tmp_path) == BaseModelFacts("m@v1", tmp_path, 400, 1024)


def test_a_template_may_be_a_file_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, CONFIG, {"eos_token": "<|im_end|>"})
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    assert read_base_model("m@v1", tmp_path).vocabulary_size == 400


@pytest.mark.parametrize(
    ("config", "tokenizer", "problem"),
    [
        (CONFIG, {"chat_template": "x"}, "no eos_token"),
        (CONFIG, {"eos_token": "x"}, "no chat template"),
        ({"vocab_size": 400}, TOKENIZER, "max_position_embeddings None"),
    ],
)
def test_what_is_missing_is_named(
    tmp_path: Path, config: dict[str, Any], tokenizer: dict[str, Any], problem: str
) -> None:
    write(tmp_path, config, tokenizer)
    with pytest.raises(JobError, match=problem):
        read_base_model("m@v1", tmp_path)


def test_an_unreadable_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"config\.json"):
        read_base_model("m@v1", tmp_path)
