"""Which sampling parameters a capture records: of the request, of its tools, and of the engine."""

import ast
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.sampling import RECORDED, UNRECORDED, constraining
from spanloop.foundation.settings.roles import EngineSettings
from spanloop.gateway.capture.sampling_record import record_sampling
from spanloop.gateway.engine.sampling import EngineSampling
from spanloop.gateway.engine.serving_environment import ServingEnvironment, find_serving_environment, launch_command

from .support import TIMEOUT_S, RunningGateway, StandIn, wait_until

NEUTRAL_ENGINE = EngineSampling()
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "price", "parameters": {"type": "object"}}}
STRICT: dict[str, Any] = {"type": "function", "function": {"name": "price", "strict": True, "parameters": {}}}
CLIENT_REQUEST: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "hi"}],
    "stream": True,
    "stream_options": {"include_usage": True},
    "tools": [TOOL],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "user": "u",
    "metadata": {"a": "b"},
    "store": False,
    "service_tier": "auto",
    "reasoning_effort": "low",
    "seed": 7,
    "stop": ["x"],
    "n": 1,
    "max_completion_tokens": 64,
    "temperature": 1.0,
    "top_p": 1,
    "frequency_penalty": 0,
    "presence_penalty": None,
    "logit_bias": None,
    "response_format": {"type": "text"},
    "logprobs": True,
    "top_logprobs": 0,
}
"""All that a client of OpenAI's API usually sends."""

CONSTRAINING: dict[str, Any] = {
    "top_p": 0.9,
    "top_k": 20,
    "min_p": 0.05,
    "frequency_penalty": 0.5,
    "presence_penalty": -0.5,
    "repetition_penalty": 1.1,
    "min_tokens": 4,
    "logit_bias": {"5": -100},
    "bad_words": ["no"],
    "allowed_token_ids": [1, 2],
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
    "structured_outputs": {"choice": ["a"]},
    "guided_json": {},
    "guided_regex": "a+",
    "tool_choice": {"type": "function", "function": {"name": "price"}},
    "use_beam_search": True,
    "watermarking": True,
    "thinking_token_budget": 512,
    "vllm_xargs": {"top_n_sigma": 1.0},
    "logits_processors": ["mine"],
    "functions": [{"name": "price"}],
    "web_search_options": {},
    "a_parameter_of_tomorrow": False,
}


def of(document: dict[str, Any], engine: EngineSampling = NEUTRAL_ENGINE) -> dict[str, str]:
    return record_sampling(document, engine)


def test_the_request_of_a_usual_client_is_free() -> None:
    recorded = of(CLIENT_REQUEST)
    assert constraining(recorded) == ()
    assert {"seed": "7", "stop": '["x"]', "max_completion_tokens": "64", "n": "1"}.items() <= recorded.items()
    assert not recorded.keys() & UNRECORDED


@pytest.mark.parametrize(("name", "value"), CONSTRAINING.items(), ids=CONSTRAINING)
def test_a_parameter_that_constrains_is_in_the_capture(gateway: RunningGateway, name: str, value: object) -> None:
    fields: dict[str, Any] = {**CLIENT_REQUEST, "model": "stand-in", name: value}
    assert gateway.chat(**fields).status_code == 200
    (capture,) = gateway.captures()
    assert constraining(capture.sampling) == (name,)
    assert json.loads(json.dumps(value)) in (capture.sampling[name], _parsed(capture.sampling[name]))


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


@given(
    name=st.text(min_size=1).filter(lambda name: name not in UNRECORDED | RECORDED),
    value=st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers(), max_size=3),
)
def test_an_unknown_parameter_constrains_unless_it_is_null(name: str, value: object) -> None:
    recorded = of({"messages": [], name: value})
    assert constraining(recorded) == (() if value is None else (name[:64],))


def test_long_values_and_many_unknown_parameters_are_recorded_within_bounds() -> None:
    bias = {str(token): -1.5 for token in range(50_000)}
    unknown: dict[str, Any] = {f"x{number}" * 100: "y" * 10_000 for number in range(1000)}
    recorded = of({**unknown, "logit_bias": bias, "temperature": 0.5})
    assert recorded["logit_bias"].endswith(f"… ({len(json.dumps(bias))} characters)")
    assert recorded["temperature"] == "0.5"
    assert recorded["other_parameters"] == str(1000 - 16)
    assert {"logit_bias", "other_parameters"} <= set(constraining(recorded))
    assert sum(len(name) + len(text) for name, text in recorded.items()) < 30_000


@pytest.mark.parametrize("choice", [{}, {"tool_choice": "auto"}, {"tool_choice": None}, {"tool_choice": "required"}])
def test_strict_tools_are_recorded_by_name(choice: dict[str, Any]) -> None:
    """The OpenAI Agents SDK sends each tool as strict, and vLLM then constrains the calls."""
    flat = {"type": "function", "name": "flat", "strict": True}
    recorded = of({"tools": [TOOL, STRICT, flat], **choice})
    assert recorded["strict_tools"] == '["price", "flat"]'
    assert "strict_tools" in constraining(recorded)


@pytest.mark.parametrize("strict", [None, False])
def test_tools_that_are_not_strict_or_not_used_do_not_constrain(strict: object) -> None:
    tool = {"type": "function", "function": {"name": "f", "strict": strict}}
    assert of({"tools": [tool]}) == {}
    assert of({"tools": [STRICT], "tool_choice": "none", "parallel_tool_calls": False}) == {"tool_choice": "none"}


def test_a_limit_to_one_call_constrains_where_tools_are_offered() -> None:
    assert constraining(of({"tools": [TOOL], "parallel_tool_calls": False})) == ("parallel_tool_calls",)
    assert of({"parallel_tool_calls": False}) == {}


def test_every_parameter_of_vllm_is_known() -> None:
    try:
        serving = find_serving_environment()
    except ConfigurationError:
        pytest.skip("no serving environment: make setup")
    (source,) = serving.path.glob("lib/python3*/site-packages/vllm/entrypoints/openai/chat_completion/protocol.py")
    classes = [node for node in ast.parse(source.read_text()).body if isinstance(node, ast.ClassDef)]
    (request,) = [each for each in classes if each.name == "ChatCompletionRequest"]
    targets = [node.target for node in request.body if isinstance(node, ast.AnnAssign)]
    names = {target.id for target in targets if isinstance(target, ast.Name) and not target.id.startswith("_")}
    assert {"messages", "watermarking"} <= names
    assert names - UNRECORDED - RECORDED == set()


def launched(tmp_path: Path, *extra_args: str) -> EngineSampling:
    serving = ServingEnvironment(tmp_path, "vllm", "0.32.0", is_cpu=True)
    settings = EngineSettings(vllm_args=shlex.join(extra_args))
    return EngineSampling.of_command(launch_command(serving, str(tmp_path), tmp_path / "socket", settings).command)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    defaults = {"top_k": 20, "top_p": 0.8, "temperature": 0.6, "do_sample": True, "eos_token_id": 2, "min_p": None}
    (tmp_path / "generation_config.json").write_text(json.dumps(defaults))
    return tmp_path


def test_the_engine_of_the_gateway_is_neutral(model: Path) -> None:
    assert launched(model).settings == {}
    assert launched(model, "--max-num-seqs", "8", "--watermark", "0.1", "--model-impl", "vllm").settings == {}


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        (("--generation-config", "auto"), {"top_k": "20", "top_p": "0.8", "temperature": "0.6"}),
        (("--generation_config=auto",), {"top_k": "20", "top_p": "0.8", "temperature": "0.6"}),
        (("--generation-config", "/nowhere"), {"generation_config": "/nowhere"}),
        (("--override-generation-config", '{"top_k": 5}'), {"top_k": "5"}),
        (("--override-generation", '{"min_p": 0.1}'), {"min_p": "0.1"}),
        (("--override-generation-config.top_p", "0.5", "--override-generation-config.min_p=0.1"),
         {"top_p": "0.5", "min_p": "0.1"}),
        (("--override-generation-config", "{broken"), {"override_generation_config": "{broken"}),
        (("--logprobs-mode", "raw_logprobs"), {"logprobs_mode": "raw_logprobs"}),
        (("--logits-processors", "a:A", "b:B"), {"logits_processors": "a:A b:B"}),
        (("--watermark-config", '{"key": 3}'), {"watermarking": "true"}),
        (("-sc", '{"rejection_sample_method": "synthetic"}'), {"rejection_sample_method": "synthetic"}),
        (("--speculative-config", '{"method": "ngram"}'), {}),
        (("--tool-strict-level", "function"), {"tool_strict_level": "function"}),
        (("--tool-call-parser", "glm47"), {"tool_call_parser": "glm47"}),
        (("--reasoning-parser", "mistral"), {"tool_call_parser": "mistral"}),
        (("--tool-call-parser", "llama3_json"), {}),
        (("--config", "vllm.yaml"), {"config": "vllm.yaml"}),
    ],
)  # fmt: skip
def test_options_of_vllm_that_constrain_are_read(
    model: Path, arguments: tuple[str, ...], settings: dict[str, str]
) -> None:
    engine = launched(model, *arguments)
    assert engine.settings == settings
    assert set(constraining(of({"tools": [TOOL], "temperature": 0.6}, engine))) == settings.keys() - {"temperature"}


def test_a_request_overrides_the_defaults_of_its_engine(model: Path) -> None:
    engine = launched(model, "--generation-config", "auto", "--tool-strict-level", "parameter")
    assert of({}, engine) == {"top_k": "20", "top_p": "0.8", "temperature": "0.6"}
    neutral = of({"top_k": 0, "top_p": 1, "temperature": 1.0, "tools": [TOOL], "tool_choice": "none"}, engine)
    assert constraining(neutral) == ()
    assert constraining(of({"top_k": None, "top_p": 1.0, "tools": [TOOL]}, engine)) == ("tool_strict_level", "top_k")


def server_info(model: Path, **changes: Any) -> dict[str, Any]:
    """As vLLM 0.32 gives it, without what is not read."""
    config: dict[str, Any] = {
        "model": str(model), "generation_config": "auto", "override_generation_config": {},
        "logprobs_mode": "processed_logprobs", "logits_processors": None, **changes,
    }  # fmt: skip
    return {"vllm_config": {"model_config": config, "watermark_config": None, "speculative_config": None}}


def test_the_defaults_of_an_upstream_are_in_its_captures(
    start_gateway: Callable[..., RunningGateway], stand_in: StandIn, upstream: str, model: Path
) -> None:
    stand_in.server_info = server_info(model, override_generation_config={"top_p": 0.7})
    gateway = start_gateway(upstream=upstream)
    wait_until(lambda: gateway.health()["engine"] == "serving")
    gateway.chat(top_k=-1, seed=1)
    (capture,) = gateway.captures()
    assert capture.sampling == {"temperature": "0.6", "top_k": "-1", "top_p": "0.7", "seed": "1"}
    assert constraining(capture.sampling) == ("top_p",)
    assert gateway.admin("status").json()["sampling"] == {"temperature": "0.6", "top_k": "20", "top_p": "0.7"}


@pytest.mark.parametrize(
    ("document", "settings"),
    [
        ({}, {"generation_config": "auto", "logprobs_mode": "raw_logprobs"}),
        ({"vllm_config": "text"}, {"generation_config": "auto", "logprobs_mode": "raw_logprobs"}),
    ],
)
def test_a_configuration_in_another_format_is_not_taken_for_a_neutral_one(
    document: dict[str, Any], settings: dict[str, str]
) -> None:
    assert EngineSampling.of_server_info(document).settings == settings


def test_model_cards_keep_the_context_length_of_the_engine(
    start_gateway: Callable[..., RunningGateway], stand_in: StandIn, upstream: str
) -> None:
    stand_in.max_model_len = 8192
    gateway = start_gateway(upstream=upstream)
    wait_until(lambda: gateway.health()["engine"] == "serving")
    cards = httpx.get(f"{gateway.url}/v1/models", timeout=TIMEOUT_S).json()["data"]
    assert [(card["id"], card["max_model_len"]) for card in cards] == [
        ("stand-in@external", 8192),
        ("stand-in", 8192),
    ]


def test_a_model_card_has_no_context_length_that_the_engine_does_not_tell(gateway: RunningGateway) -> None:
    cards = httpx.get(f"{gateway.url}/v1/models", timeout=TIMEOUT_S).json()["data"]
    assert ["max_model_len" in card for card in cards] == [False, False]
