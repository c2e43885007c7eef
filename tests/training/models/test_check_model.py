"""Test that problems of a model folder are reported with the next step, and that tokens can be overridden."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spanloop.demo.smollm2 import packaged_template
from spanloop.foundation.errors import ConfigurationError, JobError
from spanloop.training.models.files import check
from spanloop.training.models.files.chat_template import folder_templates
from spanloop.training.models.files.check import Finding, check_model, require_model
from spanloop.training.models.files.tokenizer_files import folder_with_overrides
from spanloop.training.models.files.weights import check_weights

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def edit(folder: Path, name: str, **fields: Any) -> None:
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def template(text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "chat_template.jinja").write_text(text)

    return write


def fields(name: str, **values: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        edit(folder, name, **values)

    return write


def without(name: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        (folder / name).unlink()

    return remove


def cut(size: int) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:size])

    return write


def garbled(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((5).to_bytes(8, "little") + b"weigh")


def indexed(shard: str, tensor: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        index = {"weight_map": {tensor: shard}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    return write


def one_more_token(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    tokenizer["added_tokens"].append(tokenizer["added_tokens"][0] | {"id": size, "content": "<|extra|>"})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def end_elsewhere(folder: Path) -> None:
    edit(folder, "tokenizer_config.json", eos_token="<|endoftext|>")
    edit(folder, "generation_config.json", eos_token_id=0)


def no_end(folder: Path) -> None:
    edit(folder, "tokenizer_config.json", eos_token=None)
    edit(folder, "generation_config.json", eos_token_id=None)


@pytest.fixture
def model(tiny_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def test_the_tiny_model_is_fine(model: Path) -> None:
    assert check_model(model) == []


def test_smollm2s_template_is_fine_on_a_model_of_its_tokens(model: Path) -> None:
    template(packaged_template("smollm2_tools"))(model)
    assert check_model(model) == []


@pytest.mark.parametrize(
    ("damage", "what", "step"),
    [
        (without("config.json"), "no config.json", "config.json"),
        (without("model.safetensors"), "no weights", "complete copy"),
        (cut(-1), "is cut short", "complete copy"),
        (cut(100), "is cut short", "complete copy"),
        (cut(4), "is cut short", "complete copy"),
        (garbled, "is not a safetensors file", "complete copy"),
        (indexed("model-00002-of-00002.safetensors", "x"), "lacks model-00002-of-00002", "complete copy"),
        (indexed("model.safetensors", "absent.weight"), "absent.weight", "complete copy"),
        (without("tokenizer.json"), "no tokenizer", "complete copy"),
        (without("chat_template.jinja"), "no chat template", "--chat-template FILE"),
        (template("{% for m in messages %}"), "cannot be rendered: TemplateSyntaxError", "--chat-template FILE"),
        (template("{{ raise_exception('never') }}"), "cannot be rendered: TemplateError: never", "--chat-template"),
        (template("hello"), "leaves out what the assistant says", "--chat-template FILE"),
        (template("{{ messages[1].content if messages|length > 1 }}"), "what the user says", "--chat-template FILE"),
        (template(CHATML.replace("<|im_end|>", "")), "ends a turn of the assistant with the token", "--eos"),
        (template(CHATML.replace("<|im_end|>\n", " ")), "with the token '<|im_start|>'", "--eos"),
        (template(CHATML.replace("<|im_end|>", "</s>")), "with '</s>", "--eos 'TOKEN'"),
        (end_elsewhere, "token '<|im_end|>', but generation ends only at '<|endoftext|>'", "--eos '<|im_end|>'"),
        (no_end, "No end-of-sequence token", "--eos '<|im_end|>'"),
        (one_more_token, "the tokenizer has ids up to", "resize_token_embeddings"),
        (fields("config.json", vocab_size=10), "config.json says vocab_size 10", "vocab_size"),
        (fields("tokenizer_config.json", pad_token="<|nothing|>"), "'<|nothing|>' is not in", "--pad TOKEN"),
        (fields("config.json", quantization_config={}), "quantised weights cannot be trained", "bfloat16"),
    ],
)
def test_what_cannot_work_is_an_error(model: Path, damage: Callable[[Path], None], what: str, step: str) -> None:
    damage(model)
    with pytest.raises(JobError) as caught:
        require_model("m@v1", model)
    assert what in caught.value.what
    assert step in caught.value.next_step
    assert "m@v1" in caught.value.what


@pytest.mark.parametrize(
    ("damage", "what", "step"),
    [
        (template(CHATML), "ignores tools", "--chat-template FILE"),
        (
            template("{% if tools %}{{ raise_exception('no tools') }}{% endif %}" + CHATML),
            "ignores tools (TemplateError: no tools)",
            "--chat-template FILE",
        ),
        (template("{{ tools }}" + CHATML), "leaves out tool calls", "--chat-template FILE"),
        (
            template("{{ tools }}" + CHATML.replace("{{ m.content }}", "{{ m.content or m.tool_calls }}")),
            "does not write tool calls as <tool_call>",
            "--tool-call-parser",
        ),
        (
            template("{{ tools }}{% if messages[-1].role == 'tool' %}{{ raise_exception('no') }}{% endif %}" + CHATML),
            "refuses tool calls and their results (TemplateError: no)",
            "--chat-template FILE",
        ),
        (
            template(
                "{{ tools }}"
                + CHATML.replace("{{ m.content }}", "{{ m.tool_calls or m.role != 'tool' and m.content }}")
            ),
            "leaves out tool results",
            "--chat-template FILE",
        ),
        (
            template("{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHATML),
            "ignores tools:",
            "--chat-template FILE",
        ),
        (fields("tokenizer_config.json", pad_token=None), "no pad token", "--pad TOKEN"),
        (fields("tokenizer_config.json", pad_token="<|im_end|>"), "pads with '<|im_end|>'", "--pad TOKEN"),
    ],
)
def test_what_is_suspicious_is_a_warning(model: Path, damage: Callable[[Path], None], what: str, step: str) -> None:
    damage(model)
    findings = require_model("m@v1", model)
    (found,) = [finding for finding in findings if what in finding.what]
    assert not found.is_error
    assert step in found.next_step


def test_turns_that_are_rewritten_are_a_warning(model: Path) -> None:
    shortened = CHATML.replace("{{ m.content }}", "{% if loop.last %}Now: {% endif %}{{ m.content }}")
    template(shortened)(model)
    assert [finding.what for finding in require_model("m@v1", model) if "do not continue each other" in finding.what]


def test_all_errors_are_said_at_once_and_errors_come_first(model: Path) -> None:
    edit(model, "config.json", vocab_size=10)
    template(CHATML.replace("<|im_end|>", ""))(model)
    edit(model, "tokenizer_config.json", pad_token=None)
    findings = check_model(model)
    assert [finding.is_error for finding in findings] == sorted([f.is_error for f in findings], reverse=True)
    with pytest.raises(JobError, match=r"vocab_size 10.*ends a turn"):
        require_model("m@v1", model)


def test_any_token_at_which_generation_ends_may_end_a_turn(model: Path) -> None:
    edit(model, "tokenizer_config.json", eos_token={"content": "<|endoftext|>"}, pad_token="<|im_start|>")
    edit(model, "generation_config.json", eos_token_id=[0, 2])
    assert check_model(model) == []
    (model / "generation_config.json").unlink()
    edit(model, "config.json", eos_token_id=2)
    assert check_model(model) == []


def test_templates_are_found_wherever_transformers_looks(model: Path) -> None:
    (model / "chat_template.jinja").unlink()
    pair = [{"name": "default", "template": CHATML}, {"name": "tool_use", "template": CHATML + "{{ tools }}"}]
    edit(model, "tokenizer_config.json", chat_template=pair)
    assert folder_templates(model) == {"default": CHATML, "tool_use": CHATML + "{{ tools }}"}
    assert not any("ignores tools" in finding.what for finding in check_model(model))
    edit(model, "tokenizer_config.json", chat_template=7)
    assert "cannot be read" in check_model(model)[0].what
    (model / "chat_template.json").write_text(json.dumps({"chat_template": CHATML}))
    assert folder_templates(model) == {"default": CHATML}


def test_without_transformers_the_rest_is_checked(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_name: str) -> None:
        return None

    monkeypatch.setattr(check, "find_spec", absent)
    (found,) = check_model(model)
    assert found == Finding(
        is_error=False,
        what="The chat template was not checked, because transformers is not installed.",
        next_step="pip install '/path/to/spanloop[train]'",
    )


def test_weights_are_described(model: Path) -> None:
    weights = check_weights(model)
    assert weights.dtypes == {"F32"}
    assert weights.embedding_rows == json.loads((model / "config.json").read_text())["vocab_size"]


def test_weights_of_the_old_kind_are_a_warning(model: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    (found,) = require_model("m@v1", model)
    assert "trained but not served" in found.what


def test_nothing_to_mend_is_the_folder_itself(model: Path) -> None:
    with folder_with_overrides(model) as same:
        assert same == model


def test_a_mended_copy_is_fine_and_the_folder_is_as_before(model: Path, tmp_path: Path) -> None:
    end_elsewhere(model)
    edit(model, "tokenizer_config.json", pad_token=None, chat_template="{{ old }}")
    (model / "chat_template.jinja").unlink()
    (model / "special_tokens_map.json").write_text('{"eos_token": "<|endoftext|>"}')
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    chosen = tmp_path / "mine.jinja"
    chosen.write_text(packaged_template("smollm2_tools"))
    with folder_with_overrides(model, chat_template=chosen, eos="<|im_end|>", pad="<|endoftext|>") as model_folder:
        assert check_model(model_folder) == []
        assert folder_templates(model_folder) == {"default": chosen.read_text()}
        assert json.loads((model_folder / "generation_config.json").read_text())["eos_token_id"] == 2
        assert json.loads((model_folder / "config.json").read_text())["pad_token_id"] == 0
        assert (model_folder / "model.safetensors").resolve() == (model / "model.safetensors").resolve()
    assert not model_folder.exists()
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before


def test_a_token_that_is_none_is_refused(model: Path) -> None:
    with (
        pytest.raises(ConfigurationError, match="'</s>' is not a token of the model") as caught,
        folder_with_overrides(model, eos="</s>"),
    ):
        pass
    assert "<|im_end|>" in caught.value.next_step
