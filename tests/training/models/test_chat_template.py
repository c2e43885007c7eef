"""Test SmolLM2's template with tools: earlier turns render as they were sampled, so prompts continue each other."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from spanloop.demo.smollm2 import packaged_template
from spanloop.foundation.errors import ServiceError
from spanloop.training.models.fetching import fetch_model
from spanloop.training.models.files.chat_template import render

pytestmark = pytest.mark.timeout(600)  # the first test that uses the real tokenizer may have to get the model

TEMPLATE = packaged_template("smollm2_tools")
END = "<|im_end|>"
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city, in °C & words",
        "strict": None,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
NOW: dict[str, Any] = {"type": "function", "function": {"name": "now"}}
ASK = {"role": "user", "content": "How is it in Zürich?"}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "sunny <b>"}


class Call(NamedTuple):
    name: str
    arguments: dict[str, Any]


def sampled(content: str, *calls: Call) -> str:
    """What a model writes that uses JSON as ``json.dumps`` does."""
    blocks = [
        f"<tool_call>\n{json.dumps({'name': call.name, 'arguments': call.arguments}, ensure_ascii=False)}\n</tool_call>"
        for call in calls
    ]
    return content + "\n".join(blocks)


def in_history(content: str, *calls: Call) -> dict[str, Any]:
    """The message that an engine hands the template when the client sends that turn back."""
    message: dict[str, Any] = {"role": "assistant", "content": content or None}
    if calls:
        message["tool_calls"] = [
            {"id": str(index), "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for index, call in enumerate(calls)
        ]
    return message


TURNS: list[tuple[str, *tuple[Call, ...]]] = [
    ("It is sunny.",),
    ("",),
    ("", Call("get_weather", {"city": "Zürich"})),
    ("", Call("now", {})),
    ("Let me see.\n", Call("get_weather", {"city": "Zürich"})),
    ("Let me see.", Call("get_weather", {"city": 'it\'s <b>"A & B"</b>\n'})),
    ("", Call("get_weather", {"city": "Bern", "days": [1, 2.5, None, True]}), Call("now", {})),
    ("Both:\n\n", Call("now", {}), Call("now", {"zone": {"name": "UTC"}})),
]
AFTER: list[list[dict[str, Any]]] = [
    [RESULT],
    [RESULT, {"role": "tool", "tool_call_id": "2", "content": "12:00"}],
    [{"role": "user", "content": "And tomorrow?"}],
    [{"role": "tool", "tool_call_id": "1", "content": None}, {"role": "user", "content": ""}],
]
SYSTEMS: list[list[dict[str, Any]]] = [[], [{"role": "system", "content": "Be brief."}]]


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("tools", [[], [WEATHER, NOW]])
@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("after", AFTER)
def test_the_next_prompt_continues_prompt_and_response(
    system: list[dict[str, Any]],
    tools: list[dict[str, Any]],
    turn: tuple[str, *tuple[Call, ...]],
    after: list[dict[str, Any]],
) -> None:
    start = [*system, ASK]
    prompt = render(TEMPLATE, start, tools=tools, add_generation_prompt=True)
    following = render(TEMPLATE, [*start, in_history(*turn), *after], tools=tools, add_generation_prompt=True)
    assert following.startswith(f"{prompt}{sampled(*turn)}{END}\n<|im_start|>{after[0]['role']}\n")
    assert following.endswith(f"{END}\n<|im_start|>assistant\n")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
CALLS = st.lists(st.builds(Call, st.text(min_size=1), st.dictionaries(st.text(), JSON, max_size=3)), max_size=3)


@given(content=st.text(), calls=CALLS)
def test_any_turn_reads_as_it_was_sampled(content: str, calls: list[Call]) -> None:
    prompt = render(TEMPLATE, [ASK], tools=[NOW], add_generation_prompt=True)
    following = render(TEMPLATE, [ASK, in_history(content, *calls), RESULT], tools=[NOW])
    assert following.startswith(f"{prompt}{sampled(content, *calls)}{END}\n")


def test_tools_are_one_line_each_after_the_system_message() -> None:
    text = render(TEMPLATE, [{"role": "system", "content": "Be brief."}, ASK], tools=[WEATHER, NOW])
    system, _, rest = text.partition(END)
    assert system.startswith("<|im_start|>system\nBe brief.\n\n")
    lines = [json.loads(line) for line in system.splitlines() if line.startswith('{"name":"')]
    assert lines == [
        {key: WEATHER["function"][key] for key in ("name", "description", "parameters")},
        {"name": "now", "description": "", "parameters": {}},
    ]
    assert "in °C & words" in system
    assert rest == f"\n<|im_start|>user\n{ASK['content']}{END}\n"


def test_without_a_system_message_the_models_own_is_there() -> None:
    assert render(TEMPLATE, [ASK], add_generation_prompt=True) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        f"<|im_start|>user\n{ASK['content']}<|im_end|>\n<|im_start|>assistant\n"
    )


def test_results_in_a_row_are_one_turn() -> None:
    text = render(TEMPLATE, [ASK, in_history("", Call("now", {}), Call("now", {})), RESULT, RESULT, ASK])
    assert text.count("<|im_start|>tool") == 1
    assert (
        "<|im_start|>tool\n<tool_response>\nsunny <b>\n</tool_response>\n<tool_response>\nsunny <b>\n</tool_response>"
        f"{END}\n<|im_start|>user\n"
    ) in text


def test_a_definition_without_its_envelope_and_arguments_as_text_are_taken() -> None:
    bare = {"role": "assistant", "content": None, "tool_calls": [{"name": "now", "arguments": '{"zone":"UTC"}'}]}
    text = render(TEMPLATE, [ASK, bare], tools=[NOW["function"]])
    assert '{"name":"now","description":"","parameters":{}}\n' in text
    assert '<tool_call>\n{"name": "now", "arguments": {"zone":"UTC"}}\n</tool_call>' in text


@pytest.fixture(scope="session")
def smollm2(pytestconfig: pytest.Config) -> Path:
    """The real model, got once and kept with pytest's cache; its template may be of an earlier day."""
    cache: Any = pytestconfig.cache
    if cache is None:
        pytest.skip("pytest keeps no cache here")
    try:
        return fetch_model("smollm2", cache.mkdir("models") / "smollm2", print)
    except ServiceError as error:
        pytest.skip(f"no model to be had: {error}")


def load_tokenizer(folder: Path) -> Any:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


@pytest.mark.slow
def test_the_real_tokenizer_continues_token_by_token(smollm2: Path) -> None:
    tokenizer = load_tokenizer(smollm2)

    def ids(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    end: int = tokenizer.token_to_id(END)
    assert json.loads((smollm2 / "generation_config.json").read_text())["eos_token_id"] == end
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, ASK]
    for turn, after in zip(TURNS, AFTER * 2, strict=True):
        prompt = ids(render(TEMPLATE, messages, tools=[WEATHER, NOW], add_generation_prompt=True))
        response = [*ids(sampled(*turn)), end]
        messages = [*messages, in_history(*turn), *after]
        following = ids(render(TEMPLATE, messages, tools=[WEATHER, NOW], add_generation_prompt=True))
        assert following[: len(prompt) + len(response) + 1] == [*prompt, *response, *ids("\n")]


@pytest.mark.slow
def test_the_real_tokenizer_loses_nothing(smollm2: Path) -> None:
    tokenizer = load_tokenizer(smollm2)
    for text in ("Zürich  in 2024: 17 °C\n\n\tok", '{"a": [1, 2.5e3], "b": "日本"}', " leading and trailing "):
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
    assert len(tokenizer.encode("2024").ids) == 4  # every digit is a token of its own
