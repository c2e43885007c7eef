"""``spanloop models add``: an unusable model is rejected with the next step, and fixed in the copy."""

import json
import shutil
from pathlib import Path

import pytest

from spanloop.demo.smollm2 import packaged_template
from spanloop.demo.tiny_model import build_tiny_model
from spanloop.training.models.files.tokenizer_fingerprint import tokenizer_fingerprint

from .support import Run


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "model"
    build_tiny_model(folder, training_steps=0)
    return folder


@pytest.fixture
def model(tiny_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def registered(tmp_path: Path, version: str) -> Path:
    return tmp_path / "data" / "models" / "mine" / version


def test_a_whole_model_is_added_without_a_word(spanloop: Run, model: Path) -> None:
    completed = spanloop("models", "add", "mine", str(model))
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.strip() == "mine@v1"
    assert "warning" not in completed.stderr
    assert "mine@v1" in spanloop("models", "list").stdout


def test_a_model_without_a_chat_template_is_fixed_in_the_copy(spanloop: Run, model: Path, tmp_path: Path) -> None:
    (model / "chat_template.jinja").unlink()
    completed = spanloop("models", "add", "mine", str(model))
    assert completed.returncode == 1
    assert "no chat template" in completed.stderr
    assert "--chat-template FILE" in completed.stderr
    assert not registered(tmp_path, "v1").exists()
    template = tmp_path / "mine.jinja"
    template.write_text(packaged_template("smollm2_tools"))
    completed = spanloop("models", "add", "mine", str(model), "--chat-template", str(template))
    assert completed.stdout.strip() == "mine@v1", completed.stderr
    assert (registered(tmp_path, "v1") / "chat_template.jinja").read_text() == template.read_text()
    assert not (registered(tmp_path, "v1") / "model.safetensors").is_symlink()
    assert not (model / "chat_template.jinja").exists()


def test_a_version_that_keeps_thinking_has_another_fingerprint(spanloop: Run, model: Path, tmp_path: Path) -> None:
    for options in ((), ("--thinking", "keep")):
        completed = spanloop("models", "add", "mine", str(model), *options)
        assert completed.returncode == 0, completed.stderr
    assert json.loads((registered(tmp_path, "v2") / "tokenizer_config.json").read_text())["thinking"] == "keep"
    assert "thinking" not in json.loads((model / "tokenizer_config.json").read_text())
    first, second = (tokenizer_fingerprint(registered(tmp_path, version)) for version in ("v1", "v2"))
    assert first != second


@pytest.mark.slow
def test_a_turn_that_never_ends_is_fixed_in_the_copy(spanloop: Run, model: Path, tmp_path: Path) -> None:
    for name, fields in (
        ("tokenizer_config.json", {"eos_token": "<|endoftext|>", "pad_token": None}),
        ("generation_config.json", {"eos_token_id": 0}),
    ):
        (model / name).write_text(json.dumps(json.loads((model / name).read_text()) | fields))
    completed = spanloop("models", "add", "mine", str(model))
    assert completed.returncode == 1
    assert "responses would never end" in completed.stderr
    assert "--eos '<|im_end|>'" in completed.stderr
    completed = spanloop("models", "add", "mine", str(model), "--eos", "<|im_end|>")
    assert completed.stdout.strip() == "mine@v1", completed.stderr
    assert "warning: The tokenizer has no pad token" in completed.stderr
    assert json.loads((registered(tmp_path, "v1") / "generation_config.json").read_text())["eos_token_id"] == 2
    assert json.loads((model / "generation_config.json").read_text())["eos_token_id"] == 0
    completed = spanloop("models", "add", "mine", str(model), "--eos", "<|im_end|>", "--pad", "<|endoftext|>")
    assert completed.stdout.strip() == "mine@v2"
    assert "warning" not in completed.stderr


def test_a_source_that_is_none_is_one_message(spanloop: Run) -> None:
    completed = spanloop("models", "add", "mine", "./nowhere")
    assert completed.returncode == 2
    assert "'./nowhere' is not a folder" in completed.stderr
    assert "next:" in completed.stderr


def test_a_hub_out_of_reach_is_one_message(spanloop_process: Run, tmp_path: Path) -> None:
    completed = spanloop_process("models", "add", "mine", "org/name", HF_ENDPOINT="http://127.0.0.1:9", NO_PROXY="*")
    assert completed.returncode == 3
    assert "org/name could not be downloaded from http://127.0.0.1:9" in completed.stderr
    assert "Traceback" not in completed.stderr
    assert not registered(tmp_path, "v1").exists()
