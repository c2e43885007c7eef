"""Token rows from messages: a conversation as the base's chat template and tokenizer write it.

Invariant: a row is what sampling would have given. Each trained turn continues the tokens of its own prompt, which is
the template's rendering of everything before it; the loss mask covers the turn and its end token, and nothing else. A
turn whose prompt does not begin with the row so far starts a new row: the template rewrites earlier turns, or the
tokenizer joins texts differently. A template whose rendering of a turn does not continue its prompt cannot be cut.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from spanloop.foundation.errors import JobError
from spanloop.foundation.surrogates import load_json

from ...models.files.chat_template import folder_templates, render, template_for
from ...models.files.tokenizer_files import read_tokenizer_info

ChatMessage = Mapping[str, object]
CANNOT_BE_CUT: Final = "template_cannot_be_cut"
TEMPLATE_REFUSES: Final = "template_refuses"
NO_REASONING: Final = "template_without_reasoning"
NOTHING_TO_TRAIN: Final = "no_trained_turn"


class RenderingError(ValueError):
    """A conversation that the template does not render as training needs it.

    Attributes:
        reason: One of the constants of this module.
        detail: What was expected and what was there.
        position: Of the one message that cannot be trained, where the others can; else None.
    """

    def __init__(self, reason: str, detail: str, position: int | None = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.position = position


class SampledStep(NamedTuple):
    """The tokens of a response that one step gave."""

    step: int
    start: int
    end: int


class RenderedRow(NamedTuple):
    """One token row; ``loss_mask`` runs parallel to ``response_token_ids``."""

    prompt_token_ids: list[int]
    response_token_ids: list[int]
    loss_mask: list[int]
    steps: list[SampledStep]

    def columns(self) -> dict[str, Any]:
        """Return the columns of tokens and steps; there are no log-probabilities and no sampling parameters."""
        return {
            "prompt_token_ids": self.prompt_token_ids,
            "response_token_ids": self.response_token_ids,
            "loss_mask": self.loss_mask,
            "logprobs": [],
            "sampling": [],
            "policy_version": "",
            "first_step": min((step.step for step in self.steps), default=0),
            "last_step": max((step.step for step in self.steps), default=0),
            "sampled_steps": [step.step for step in self.steps],
            "sampled_starts": [step.start for step in self.steps],
            "sampled_ends": [step.end for step in self.steps],
        }


NO_TOKENS: Final = RenderedRow([], [], [], [])
"""Of a step or dialog that is rejected."""


class Renderer:
    """Renders conversations for one model.

    Args:
        folder: Hugging Face folder of the model.

    Raises:
        JobError: The folder has no readable tokenizer.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._info = read_tokenizer_info(folder)
        self._templates = folder_templates(folder)
        self._end_ids = frozenset(self._info.tokens[token] for token in self._info.end_tokens)

    @cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer  # noqa: PLC0415 - a second

        loader: Any = AutoTokenizer
        try:
            return loader.from_pretrained(self._folder)
        except (OSError, ValueError) as error:
            raise JobError(
                f"The tokenizer in {self._folder} cannot be loaded: {error}.",
                next_step="Get a complete copy of the model.",
            ) from error

    def rows(
        self, messages: Sequence[ChatMessage], steps: Sequence[int | None], tools: Sequence[ChatMessage] = ()
    ) -> list[RenderedRow]:
        """Return the rows of a conversation.

        Args:
            messages: In OpenAI's chat form.
            steps: For each assistant message in order the step that gave it; None leaves it out of the loss.
            tools: Definitions in OpenAI's chat form.

        Raises:
            RenderingError: The template refuses the conversation or cannot be cut, or no turn is trained.
            JobError: The tokenizer cannot be loaded.
        """
        conversation = [_with_objects(message) for message in messages]
        turns = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
        rows: list[RenderedRow] = []
        for position, step in zip(turns, steps, strict=True):
            if step is not None:
                prompt, action = self._turn(conversation, position, tools)
                _append(rows, step, prompt, action)
        if not rows:
            raise RenderingError(NOTHING_TO_TRAIN, "every assistant message is context")
        return rows

    def _turn(
        self, messages: Sequence[ChatMessage], position: int, tools: Sequence[ChatMessage]
    ) -> tuple[list[int], list[int]]:
        """Return the tokens before an assistant message and those that it samples, its end token included."""
        prompt = self._text(messages[:position], tools, add_generation_prompt=True)
        rendered = self._text(messages[: position + 1], tools, add_generation_prompt=False)
        if not rendered.startswith(prompt):
            raise RenderingError(CANNOT_BE_CUT, f"message {position} does not continue its prompt as rendered")
        reasoning = str(messages[position].get("reasoning_content") or "").strip()
        if reasoning not in rendered[len(prompt) :]:
            raise RenderingError(
                NO_REASONING, f"message {position} is rendered without what the model thought", position
            )
        action = self._ids(rendered[len(prompt) :])
        ends = [number for number, token in enumerate(action) if token in self._end_ids]
        if not ends:
            expected = ", ".join(self._info.end_tokens) or "any"
            raise RenderingError(
                CANNOT_BE_CUT, f"message {position} is rendered without an end token (expected {expected})"
            )
        return self._ids(prompt), action[: ends[-1] + 1]

    def _text(
        self, messages: Sequence[ChatMessage], tools: Sequence[ChatMessage], *, add_generation_prompt: bool
    ) -> str:
        import jinja2  # noqa: PLC0415 - comes with transformers, which renders

        template = template_for(self._templates, tools=bool(tools))
        if template is None:
            raise JobError(f"The model in {self._folder} has no chat template.", next_step="Add one to its folder.")
        try:
            return render(
                template,
                cast("Sequence[Mapping[str, Any]]", messages),
                tools=cast("Sequence[Mapping[str, Any]]", tools),
                add_generation_prompt=add_generation_prompt,
                special_tokens=self._info.special_tokens,
            )
        except (jinja2.TemplateError, TypeError, ValueError, KeyError) as error:
            raise RenderingError(TEMPLATE_REFUSES, str(error)) from error

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))


def _append(rows: list[RenderedRow], step: int, prompt: list[int], action: list[int]) -> None:
    """Append a turn to the last row, or start a new one."""
    if rows:
        row = rows[-1]
        tokens = len(row.prompt_token_ids) + len(row.response_token_ids)
        if prompt[:tokens] == row.prompt_token_ids + row.response_token_ids:
            between = prompt[tokens:]
            start = len(row.response_token_ids) + len(between)
            row.response_token_ids.extend(between + action)
            row.loss_mask.extend([0] * len(between) + [1] * len(action))
            row.steps.append(SampledStep(step, start, start + len(action)))
            return
    rows.append(RenderedRow(prompt, list(action), [1] * len(action), [SampledStep(step, 0, len(action))]))


def _with_objects(message: ChatMessage) -> ChatMessage:
    """Return the message with the arguments of its tool calls as objects, as engines pass them to templates.

    What the model thought has the names that templates have for it.
    """
    if reasoning := message.get("reasoning_content"):
        message = {**dict.fromkeys(_REASONING_NAMES, reasoning), **message}
    calls = cast("Sequence[Mapping[str, Any]]", message.get("tool_calls") or ())
    if not calls:
        return message
    return {**message, "tool_calls": [{**call, "function": _parsed(call["function"])} for call in calls]}


_REASONING_NAMES: Final = ("reasoning_content", "reasoning", "thinking")


def _parsed(function: Mapping[str, Any]) -> dict[str, Any]:
    arguments = function.get("arguments")
    try:
        value = load_json(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        value = arguments
    return {**function, "arguments": value}
