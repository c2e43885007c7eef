import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from spanloop.foundation.errors import JobError
from spanloop.foundation.paths import DataDir
from spanloop.gateway.continuation.vocabulary import Vocabulary
from spanloop.training.models.files.tokenizer_files import folder_with_overrides, read_tokenizer_info
from spanloop.training.models.files.tokenizer_fingerprint import tokenizer_fingerprint
from spanloop.training.models.registry import Registry

Tokenizer = dict[str, Any]


@pytest.fixture
def model(tiny_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def change(folder: Path, changed: Callable[[Tokenizer], None]) -> None:
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    changed(tokenizer)
    path.write_text(json.dumps(tokenizer, indent=3))


def write_otherwise(tokenizer: Tokenizer) -> None:
    """As another version of the library writes the same tokenizer."""
    model = tokenizer["model"]
    model["vocab"] = dict(reversed(model["vocab"].items()))
    merges: list[str | Sequence[str]] = model.get("merges", [])
    model["merges"] = [merge.split(" ", 1) if isinstance(merge, str) else " ".join(merge) for merge in merges]
    tokenizer["truncation"] = None


def swap_two_ids(tokenizer: Tokenizer) -> None:
    vocabulary = tokenizer["model"]["vocab"]
    one, other = list(vocabulary)[-2:]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]


def add_a_merge(tokenizer: Tokenizer) -> None:
    tokenizer["model"]["merges"] = [*tokenizer["model"].get("merges", []), ["a", "b"]]


def add_a_token(tokenizer: Tokenizer) -> None:
    tokenizer["added_tokens"].append(tokenizer["added_tokens"][0] | {"id": 9_999, "content": "<|new|>"})


def test_the_same_tokenizer_in_other_files_has_the_same_fingerprint(tiny_model: Path, model: Path) -> None:
    change(model, write_otherwise)
    template = model / "chat_template.jinja"
    template.write_text(template.read_text().removesuffix("\n") + "\n")
    (model / "config.json").write_text("{}")
    assert tokenizer_fingerprint(model) == tokenizer_fingerprint(tiny_model)


def test_kept_thinking_is_part_of_the_fingerprint(tiny_model: Path) -> None:
    with folder_with_overrides(tiny_model, thinking="keep") as kept:
        assert tokenizer_fingerprint(kept) != tokenizer_fingerprint(tiny_model)
        assert read_tokenizer_info(kept).thinking == "keep"
        assert Vocabulary.read(kept).keeps_thinking
        with folder_with_overrides(kept, eos="<|im_end|>") as again:  # as a copy of a trained version has it
            assert tokenizer_fingerprint(again) == tokenizer_fingerprint(kept)
    assert not Vocabulary.read(tiny_model).keeps_thinking


@pytest.mark.parametrize("changed", [swap_two_ids, add_a_merge, add_a_token])
def test_another_tokenizer_has_another_fingerprint(
    tiny_model: Path, model: Path, changed: Callable[[Tokenizer], None]
) -> None:
    change(model, changed)
    assert tokenizer_fingerprint(model) != tokenizer_fingerprint(tiny_model)


def test_another_chat_template_has_another_fingerprint(tiny_model: Path, model: Path) -> None:
    template = model / "chat_template.jinja"
    template.write_text("x" + template.read_text())
    assert tokenizer_fingerprint(model) != tokenizer_fingerprint(tiny_model)


def test_a_tokenizer_without_tokenizer_json_is_known_by_its_files(model: Path) -> None:
    (model / "tokenizer.json").rename(model / "tokenizer.model")
    before = tokenizer_fingerprint(model)
    (model / "tokenizer.model").write_bytes(b"other")
    assert tokenizer_fingerprint(model) != before


def test_a_folder_without_a_tokenizer_is_named(model: Path) -> None:
    (model / "tokenizer.json").unlink()
    with pytest.raises(JobError, match="has no tokenizer"):
        tokenizer_fingerprint(model)


def test_a_version_carries_its_fingerprint_and_only_an_exact_one(data_dir: DataDir, tiny_model: Path) -> None:
    registry = Registry(data_dir)
    registry.add("tiny", tiny_model)
    assert registry.tokenizer_fingerprint("tiny@v1") == tokenizer_fingerprint(tiny_model)
    for reference in ("tiny", "tiny@v2", "gpt-4o", "", "a b@v1"):
        assert registry.tokenizer_fingerprint(reference) is None
