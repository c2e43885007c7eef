"""Which parsers of vLLM a model folder gets."""

import json
from pathlib import Path

import pytest

from spanloop.foundation.settings.roles import EngineSettings
from spanloop.gateway.engine.parsers import Parsers, parsers_of
from spanloop.gateway.engine.serving_environment import ServingEnvironment, launch_command


@pytest.mark.parametrize(
    ("model_type", "template", "parsers"),
    [
        ("qwen3", "{{ '<tool_call>' }}", Parsers("hermes")),
        ("qwen3_5", "{{ '<tool_call>\\n<function=' }}", Parsers("qwen3_coder")),
        ("llama", "{{ '<|start_header_id|>' }}", Parsers("llama3_json")),
        ("llama", "{{ '<|im_start|>' }}", Parsers("hermes")),
        ("gpt_oss", "", Parsers("openai", "openai_gptoss")),
        ("glm4_moe", "", Parsers("glm45", "glm45")),
        ("new_family", "", Parsers("hermes")),
    ],
)
@pytest.mark.parametrize("has_file", [False, True])
def test_parsers_are_those_of_the_family(
    tmp_path: Path, model_type: str, template: str, parsers: Parsers, *, has_file: bool
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    if has_file:
        (tmp_path / "chat_template.jinja").write_text(template)
    else:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    assert parsers_of(tmp_path) == parsers


def test_a_setting_replaces_the_familys_parser(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "glm4_moe"}')
    assert parsers_of(tmp_path, tool_call="glm47", reasoning="none") == Parsers("glm47", "")
    assert parsers_of(tmp_path / "missing") == Parsers("hermes")

    def options(settings: EngineSettings) -> list[str]:
        serving = ServingEnvironment(tmp_path, "vllm", "0.32.0", is_cpu=False)
        command = list(launch_command(serving, str(tmp_path), tmp_path / "socket", settings).command)
        return [part for part in command if part in {"--enable-auto-tool-choice", "glm45", "--reasoning-parser"}]

    assert options(EngineSettings()) == ["--enable-auto-tool-choice", "glm45", "--reasoning-parser", "glm45"]
    assert options(EngineSettings(tool_call_parser="none")) == ["--reasoning-parser", "glm45"]
