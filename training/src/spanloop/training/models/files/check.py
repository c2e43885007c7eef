"""Check that a model folder can be trained and served, before training or serving starts.

Invariant: an error cannot work, a warning may; the folder is not changed. Every finding has a next step. Chat
templates are rendered as the engine renders them, on small conversations with marker words.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from spanloop.foundation.errors import JobError
from spanloop.training.models.files.lora_adapter import ADAPTER_CONFIG

from .chat_template import folder_templates, render, template_for
from .tokenizer_files import TokenizerInfo, read_tokenizer_info
from .weights import Weights, check_weights

_SYSTEM: Final = {"role": "system", "content": "systemmark"}
_QUESTION: Final = {"role": "user", "content": "questionmark"}
_ANSWER: Final = {"role": "assistant", "content": "answermark"}
_TOOL_NAME: Final = "toolmark"
_TOOL: Final = {
    "type": "function",
    "function": {
        "name": _TOOL_NAME,
        "description": "descriptionmark",
        "parameters": {"type": "object", "properties": {"argumentmark": {"type": "string"}}},
    },
}
_CALL: Final = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "callmark0", "type": "function", "function": {"name": "callmark", "arguments": {"argumentmark": "x"}}}
    ],
}
_RESULT: Final = {"role": "tool", "tool_call_id": "callmark0", "name": "callmark", "content": "resultmark"}
_HERMES: Final = "<tool_call>"
"""Start of a tool call in the format of the gateway's tool call parser."""

_SHOWN_CHARACTERS: Final = 40


class Finding(NamedTuple):
    """An error or a warning about a model folder."""

    is_error: bool
    """Whether the model cannot work; otherwise it is a warning."""
    what: str
    next_step: str


def check_model(folder: Path) -> list[Finding]:
    """Return the errors and warnings about the Hugging Face folder ``folder``, errors first."""
    try:
        weights = check_weights(folder)
        text = read_tokenizer_info(folder)
    except JobError as error:
        return [Finding(is_error=True, what=error.what, next_step=error.next_step)]
    findings = [*_check_weights(folder, weights, text), *_check_embeddings(text, weights), *_check_chat(folder, text)]
    return sorted(findings, key=lambda finding: not finding.is_error)


def require_model(reference: str, folder: Path) -> list[Finding]:
    """Check ``folder`` and return its warnings.

    Raises:
        JobError: There are errors; the message names all of them.
    """
    findings = check_model(folder)
    errors = [finding for finding in findings if finding.is_error]
    if errors:
        raise JobError(
            f"Model {reference} cannot be used: {' '.join(finding.what for finding in errors)}",
            next_step=errors[0].next_step,
        )
    return findings


def _check_weights(folder: Path, weights: Weights, text: TokenizerInfo) -> Iterator[Finding]:
    if not weights.tensors:
        yield Finding(
            is_error=False,
            what=f"{folder} has its weights in pytorch_model*.bin, which can be trained but not served.",
            next_step="Save it with save_pretrained(..., safe_serialization=True) and add it again.",
        )
    if (folder / ADAPTER_CONFIG).exists():
        yield Finding(
            is_error=True,
            what=f"{folder} is a LoRA adapter without the weights of its base.",
            next_step="Merge it (PEFT's merge_and_unload), save the model and add that folder.",
        )
    if "quantization_config" in text.config:
        yield Finding(
            is_error=True,
            what=f"{folder}/config.json has a quantization_config: quantised weights cannot be trained.",
            next_step="Use the same model in bfloat16 or float32.",
        )


def _check_embeddings(text: TokenizerInfo, weights: Weights) -> Iterator[Finding]:
    rows = weights.embedding_rows
    size = text.vocabulary_size
    if rows is not None and size is not None and rows != size:
        yield Finding(
            is_error=True,
            what=f"The embeddings have {rows} rows, config.json says vocab_size {size}.",
            next_step="Set vocab_size to the number of rows, or get a folder whose files belong together.",
        )
    rows = rows if rows is not None else size
    if text.tokens and rows is not None and max(text.tokens.values()) >= rows:
        last = max(text.tokens, key=lambda token: text.tokens[token])
        yield Finding(
            is_error=True,
            what=f"The embeddings have {rows} rows, but the tokenizer has ids up to {text.tokens[last]} ({last!r}).",
            next_step="Resize the embeddings (model.resize_token_embeddings(len(tokenizer))) and save the model again, "
            "or use the tokenizer that belongs to it.",
        )


def _check_chat(folder: Path, text: TokenizerInfo) -> Iterable[Finding]:
    try:
        templates = folder_templates(folder)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return [
            _error(f"The chat template in {folder} cannot be read: {error}.", "Pass a template: --chat-template FILE")
        ]
    if not templates:
        return [
            _error(
                f"{folder} has no chat template: got neither chat_template.jinja nor chat_template in "
                "tokenizer_config.json.",
                "Use an instruction-tuned model, or pass a template: spanloop models add --chat-template FILE",
            )
        ]
    if find_spec("transformers") is None:
        return [
            _warning(
                "The chat template was not checked, because transformers is not installed.",
                "pip install '/path/to/spanloop[train]'",
            )
        ]
    findings = [*_check_ending(text, templates), *_check_padding(text)]
    # Tools cannot be checked with a template that does not render.
    return findings if any(finding.is_error for finding in findings) else [*findings, *_check_tools(text, templates)]


def _check_ending(text: TokenizerInfo, templates: Mapping[str, str]) -> Iterator[Finding]:
    """Check that generation ends where the template ends a turn of the assistant."""
    template = template_for(templates, tools=False)
    if template is None:
        yield _error(
            f"None of the chat templates {', '.join(templates)} is the default.",
            "Pass a template: --chat-template FILE",
        )
        return
    prompt = _render(template, text, [_QUESTION], prompt=True)
    history = _render(template, text, [_QUESTION, _ANSWER, _QUESTION])
    for problem in (prompt, history):
        if isinstance(problem, _RenderError):
            yield _error(
                f"The chat template cannot be rendered: {problem.reason}.",
                "Pass another template: --chat-template FILE",
            )
            return
    assert isinstance(prompt, str)  # noqa: S101 - for the type checkers
    assert isinstance(history, str)  # noqa: S101
    _, answer, remainder = history.partition(_ANSWER["content"])
    if not answer or _QUESTION["content"] not in prompt:
        role = "user" if answer else "assistant"
        yield _error(
            f"The chat template leaves out what the {role} says.", "Pass another template: --chat-template FILE"
        )
        return
    yield from _compare_ending(text, remainder.lstrip())
    if not history.startswith(prompt.rstrip()) or not history[len(prompt.rstrip()) :].lstrip().startswith(answer):
        yield _warning(
            "The chat template changes earlier turns after the model sampled them, so that the steps of an "
            "episode do not continue each other and each becomes a separate training row.",
            "No problem for agents of one step; else pass a template that keeps turns: --chat-template FILE",
        )


def _compare_ending(text: TokenizerInfo, rest: str) -> Iterator[Finding]:
    if not text.end_tokens:
        yield _error(
            "No end-of-sequence token is set: the end of a turn is unknown.",
            f"Set it: spanloop models add --eos '{_first_token(text, rest) or 'TOKEN'}'",
        )
    elif not rest.startswith(tuple(text.end_tokens)):
        token = _first_token(text, rest)
        got = f"the token {token!r}" if token else f"{rest[:_SHOWN_CHARACTERS]!r}" if rest else "nothing"
        ends = ", ".join(repr(end) for end in text.end_tokens)
        yield _error(
            f"The chat template ends a turn of the assistant with {got}, but generation ends only at {ends}: "
            "responses would never end.",
            f"Set the token that ends a turn: spanloop models add --eos '{token or 'TOKEN'}'",
        )


def _check_padding(text: TokenizerInfo) -> Iterator[Finding]:
    step = "Set another token of the vocabulary: spanloop models add --pad TOKEN"
    if not text.pad_token:
        yield _warning("The tokenizer has no pad token, so rows are padded with the token that ends a turn.", step)
    elif text.pad_token == text.eos_token:
        yield _warning(f"The tokenizer pads with {text.pad_token!r}, the token that ends a turn.", step)
    elif text.tokens and text.pad_token not in text.tokens:
        yield _error(f"The pad token {text.pad_token!r} is not in the tokenizer's vocabulary.", step)


def _check_tools(text: TokenizerInfo, templates: Mapping[str, str]) -> Iterator[Finding]:
    """Check that tools, tool calls and their results reach the model; only relevant for agents with tools."""
    template = template_for(templates, tools=True) or ""
    step = "Pass a template that writes tools: spanloop models add --chat-template FILE"
    start = [_SYSTEM, _QUESTION]
    if isinstance(_render(template, text, start, prompt=True), _RenderError):
        start = [_QUESTION]
    offered = _render(template, text, start, tools=[_TOOL], prompt=True)
    if isinstance(offered, _RenderError) or _TOOL_NAME not in offered:
        why = f" ({offered.reason})" if isinstance(offered, _RenderError) else ""
        yield _warning(f"The chat template ignores tools{why}: an agent's tools would never reach the model.", step)
        return
    used = _render(template, text, [*start, _CALL, _RESULT], tools=[_TOOL], prompt=True)
    if isinstance(used, _RenderError):
        yield _warning(f"The chat template refuses tool calls and their results ({used.reason}).", step)
        return
    history = used.partition(_QUESTION["content"])[2]
    if "callmark" not in history or "resultmark" not in history:
        what = "calls" if "callmark" not in history else "results"
        yield _warning(f"The chat template leaves out tool {what}: the model would not see its earlier steps.", step)
    elif _HERMES not in history:
        yield _warning(
            f"The chat template does not write tool calls as {_HERMES}…, the format that the engine parses.",
            "Serve with the model's parser: spanloop up --vllm-args '--tool-call-parser NAME'",
        )


class _RenderError(NamedTuple):
    reason: str


def _render(
    template: str,
    text: TokenizerInfo,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    prompt: bool = False,
) -> str | _RenderError:
    try:
        return render(template, messages, tools=tools, add_generation_prompt=prompt, special_tokens=text.special_tokens)
    except Exception as error:  # noqa: BLE001 - a template is third-party code and may raise anything
        return _RenderError(" ".join(f"{type(error).__name__}: {error}".split()))


def _first_token(text: TokenizerInfo, rest: str) -> str | None:
    """Return the longest special token that ``rest`` begins with."""
    return max((token for token in text.added_tokens if rest.startswith(token)), key=len, default=None)


def _error(what: str, next_step: str) -> Finding:
    return Finding(is_error=True, what=what, next_step=next_step)


def _warning(what: str, next_step: str) -> Finding:
    return Finding(is_error=False, what=what, next_step=next_step)
