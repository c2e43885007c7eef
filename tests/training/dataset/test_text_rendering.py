"""Rendered rows are what sampling would have given, whatever the template does."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from spanloop.training.dataset.text.rendering import (
    CANNOT_BE_CUT,
    NO_REASONING,
    NOTHING_TO_TRAIN,
    TEMPLATE_REFUSES,
    RenderedRow,
    Renderer,
    RenderingError,
)
from spanloop.training.models.files.chat_template import folder_templates, render

SYSTEM = {"role": "system", "content": "Be brief."}
ASK = {"role": "user", "content": "How warm is Oslo?"}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "7"}
THANKS = {"role": "user", "content": "And Rome?"}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "warmth", "description": "Degrees", "parameters": {}}}


def call(arguments: str = '{"city": "Oslo"}') -> dict[str, Any]:
    function = {"name": "warmth", "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }


def say(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


HEADERS = (  # as Llama 3: headers of plain text, trimmed contents, no newline after the end token
    "{%- for message in messages %}{{- '[head]' + message.role + '[/head]\n\n' + (message.content or '') | trim }}"
    "{%- for call in message.tool_calls or [] %}{{- call.function | tojson }}{%- endfor %}{{- '<|im_end|>' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '[head]assistant[/head]\n\n' }}{%- endif %}"
)
FORGETS_REASONING = (  # as Qwen 3: the reasoning of turns before the last question is left out
    "{%- set last = namespace(user=0) %}{%- for message in messages %}{%- if message.role == 'user' %}"
    "{%- set last.user = loop.index0 %}{%- endif %}{%- endfor %}"
    "{%- for message in messages %}{%- set text = message.content or '' %}"
    "{%- if message.role == 'assistant' and loop.index0 < last.user %}{%- set text = text.split('</think>')[-1] %}"
    "{%- endif %}{{- '<|im_start|>' + message.role + '\n' + text + '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
NO_SYSTEM = (
    "{%- for message in messages %}{%- if message.role == 'system' %}{{ raise_exception('no system message') }}"
    "{%- endif %}{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
ALTERNATING = (
    "{%- for message in messages %}{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{%- endif %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
PROMPTS_TO_THINK = NO_SYSTEM.replace("assistant\n' }}{%- endif", "assistant\n<think>' }}{%- endif")
WITHOUT_END = NO_SYSTEM.replace("<|im_end|>", "")


@pytest.fixture
def with_template(tiny_model: Path, tmp_path: Path) -> Any:
    def make(template: str) -> Renderer:
        folder = shutil.copytree(tiny_model, tmp_path / "other")
        (folder / "chat_template.jinja").write_text(template)
        return Renderer(folder)

    return make


@pytest.fixture(scope="session")
def tiny(tiny_model: Path) -> Renderer:
    return Renderer(tiny_model)


def texts(folder: Path, row: RenderedRow) -> list[str]:
    """What each step sampled, decoded."""
    loader: Any = AutoTokenizer
    tokenizer = loader.from_pretrained(folder)
    return [tokenizer.decode(row.response_token_ids[step.start : step.end]) for step in row.steps]


def test_a_conversation_is_one_row_with_its_turns_and_end_tokens_in_the_loss(tiny: Renderer, tiny_model: Path) -> None:
    messages = [SYSTEM, ASK, call(), RESULT, say("7 degrees."), THANKS, say("12.")]
    (row,) = tiny.rows(messages, [0, 1, 2], [TOOL])
    assert texts(tiny_model, row) == [
        '<tool_call>{"name": "warmth", "arguments": {"city": "Oslo"}}</tool_call><|im_end|>',
        "7 degrees.<|im_end|>",
        "12.<|im_end|>",
    ]
    assert sum(row.loss_mask) == sum(step.end - step.start for step in row.steps)
    assert all(all(row.loss_mask[step.start : step.end]) for step in row.steps)
    assert [step.step for step in row.steps] == [0, 1, 2]


def test_context_is_left_out_of_the_loss(tiny: Renderer, tiny_model: Path) -> None:
    (row,) = tiny.rows([ASK, say("7."), THANKS, say("12.")], [None, 4])
    assert texts(tiny_model, row) == ["12.<|im_end|>"]
    assert row.steps[0].step == 4
    assert row.steps[0].start == 0
    with pytest.raises(RenderingError) as caught:
        tiny.rows([ASK, say("7.")], [None])
    assert caught.value.reason == NOTHING_TO_TRAIN


_TEXT = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=12).filter(
    lambda text: "<|" not in text
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=st.lists(st.tuples(_TEXT, _TEXT, st.booleans()), min_size=1, max_size=4), data=st.data())
@pytest.mark.parametrize("template", ["", HEADERS, FORGETS_REASONING])
def test_each_turn_continues_its_own_prompt(
    tiny_model: Path, tmp_path_factory: pytest.TempPathFactory, template: str, turns: Any, data: st.DataObject
) -> None:
    folder = tiny_model
    if template:
        folder = tmp_path_factory.getbasetemp() / f"template-{hash(template)}"
        if not folder.exists():
            shutil.copytree(tiny_model, folder)
            (folder / "chat_template.jinja").write_text(template)
    loader: Any = AutoTokenizer
    tokenizer = loader.from_pretrained(folder)
    messages: list[dict[str, Any]] = []
    for asked, answered, thinks in turns:
        thought = f"<think>{asked}</think>" if thinks else ""
        messages += [{"role": "user", "content": asked}, say(thought + answered)]
    steps = [data.draw(st.one_of(st.none(), st.just(number))) for number in range(len(turns))]
    if all(step is None for step in steps):
        steps[-1] = 0
    rows = Renderer(folder).rows(messages, steps)
    source = folder_templates(folder)["default"]
    trained = [(row, step) for row in rows for step in row.steps]
    assert [step.step for _, step in trained] == [step for step in steps if step is not None]
    positions = [2 * number + 1 for number, step in enumerate(steps) if step is not None]
    for (row, step), position in zip(trained, positions, strict=True):
        assert len(row.loss_mask) == len(row.response_token_ids)
        before = render(source, messages[:position], add_generation_prompt=True)
        tokens = row.prompt_token_ids + row.response_token_ids[: step.start]
        assert tokens == tokenizer.encode(before, add_special_tokens=False)
        action = render(source, messages[: position + 1]).removeprefix(before).rstrip("\n")
        assert row.response_token_ids[step.start : step.end] == tokenizer.encode(action, add_special_tokens=False)
    for row in rows:
        covered = {index for step in row.steps for index in range(step.start, step.end)}
        assert {index for index, kept in enumerate(row.loss_mask) if kept} == covered


def test_a_template_that_rewrites_earlier_turns_starts_a_new_row(with_template: Any, tmp_path: Path) -> None:
    renderer = with_template(FORGETS_REASONING)
    rows = renderer.rows([ASK, say("<think>cold</think>7."), THANKS, say("<think>warm</think>12.")], [0, 1])
    assert [texts(tmp_path / "other", row) for row in rows] == [
        ["<think>cold</think>7.<|im_end|>"],
        ["<think>warm</think>12.<|im_end|>"],
    ]


def thinking_template(name: str) -> str:
    """As models that think: before the answer, of the newest turn only."""
    return FORGETS_REASONING.replace(
        "{{- '<|im_start|>' + message.role + '\n' + text",
        "{%- set thought = '' %}{%- if message.role == 'assistant' and loop.index0 > last.user and message."
        + name
        + " %}{%- set thought = '<think>' + message."
        + name
        + " + '</think>' %}{%- endif %}{{- '<|im_start|>' + message.role + '\n' + thought + text",
    )


def thinks(thought: str, content: str) -> dict[str, Any]:
    return {**say(content), "reasoning_content": thought}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_what_a_model_thought_is_sampled_where_the_template_has_a_place(
    with_template: Any, tmp_path: Path, name: str
) -> None:
    renderer = with_template(thinking_template(name))
    rows = renderer.rows([ASK, thinks("cold", "7."), THANKS, thinks("warm", "12.")], [0, 1])
    assert [texts(tmp_path / "other", row) for row in rows] == [
        ["<think>cold</think>7.<|im_end|>"],
        ["<think>warm</think>12.<|im_end|>"],
    ]


def test_a_turn_is_not_trained_without_what_the_model_thought(with_template: Any, tmp_path: Path) -> None:
    renderer = with_template(FORGETS_REASONING)
    with pytest.raises(RenderingError, match="message 1 is rendered without what the model thought") as caught:
        renderer.rows([ASK, thinks("cold", "7.")], [0])
    assert caught.value.reason == NO_REASONING
    # as context it may be left out
    (row,) = renderer.rows([ASK, thinks("cold", "7."), THANKS, say("12.")], [None, 1])
    assert texts(tmp_path / "other", row) == ["12.<|im_end|>"]


@pytest.mark.parametrize(
    ("template", "messages", "reason", "detail"),
    [
        (NO_SYSTEM, [SYSTEM, ASK, say("7.")], TEMPLATE_REFUSES, "no system message"),
        (ALTERNATING, [ASK, THANKS, say("7.")], TEMPLATE_REFUSES, "roles must alternate"),
        (PROMPTS_TO_THINK, [ASK, say("7.")], CANNOT_BE_CUT, "message 1 does not continue its prompt"),
        (WITHOUT_END, [ASK, say("7.")], CANNOT_BE_CUT, "without an end token"),
    ],
)
def test_what_a_template_cannot_do_is_refused(
    with_template: Any, template: str, messages: list[dict[str, Any]], reason: str, detail: str
) -> None:
    with pytest.raises(RenderingError, match=detail) as caught:
        with_template(template).rows(messages, [0])
    assert caught.value.reason == reason


def test_arguments_are_rendered_as_an_engine_renders_them(tiny: Renderer, tiny_model: Path) -> None:
    (row,) = tiny.rows([ASK, call(json.dumps({"city": "Århus"}))], [0], [TOOL])
    assert json.loads(texts(tiny_model, row)[0].split(">", 1)[1].split("</tool_call>")[0])["arguments"] == {
        "city": "Århus"
    }
