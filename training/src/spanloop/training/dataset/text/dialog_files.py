"""Read dialog files: OpenAI's chat lines, ShareGPT, Alpaca; as JSON lines or one JSON list.

Invariant: accepted plus rejected equals the entries of the file; a broken one costs nothing but itself.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.surrogates import load_json

_ROLES: Final[Mapping[str, str]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "tool": "tool",
    "observation": "tool",
    "function": "tool",
}
"""A role of OpenAI's form or ShareGPT's ``from``, as OpenAI's."""


class Dialog(NamedTuple):
    """One dialog in OpenAI's chat form."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...]
    is_trained: tuple[bool, ...]
    """For each assistant message in order; False where the file gives it the weight 0."""


class Entry(NamedTuple):
    """One entry of a file: a dialog, or why there is none."""

    number: int
    """Line of a JSON lines file, position in a list; from 1."""
    dialog: Dialog | None
    reason: str = ""


class DialogFile(NamedTuple):
    """A file and the weight of its dialogs."""

    path: Path
    weight: float
    """How often each dialog is a row on average; 0.5 takes every second one, 2 each one twice."""


def parse_dialog_file(text: str) -> DialogFile:
    """Parse ``PATH`` or ``PATH=WEIGHT``.

    Raises:
        ConfigurationError: The weight is no positive number, or there is no such file.
    """
    name, separator, last = text.rpartition("=")
    try:
        path, weight = (Path(name), float(last)) if separator else (Path(text), 1.0)
    except ValueError:
        path, weight = Path(text), 1.0
    if not 0 < weight <= 1000:
        raise ConfigurationError(
            f"The dialog file {text} has the weight {weight:g}, expected a number above 0 and up to 1000."
        )
    if not path.is_file():
        raise ConfigurationError(
            f"There is no dialog file {path}.",
            next_step="Give a path that exists on the host of the job; with a weight: PATH=0.5",
        )
    return DialogFile(path, weight)


def read_dialogs(path: Path) -> Iterator[Entry]:
    """Read the entries of a file.

    Raises:
        ConfigurationError: The file cannot be read, or is neither JSON lines nor a JSON list.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"The dialog file {path} cannot be read: {error}.") from error
    if text.lstrip().startswith("["):
        try:
            values = cast("list[object]", load_json(text))
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(
                f"The dialog file {path} begins as a JSON list and is not one: {error}.",
                next_step="Write one JSON object a line, or one list of objects.",
            ) from error
        yield from (_entry(number, value) for number, value in enumerate(values, 1))
        return
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = load_json(line)
        except (ValueError, RecursionError):
            yield Entry(number, None, "invalid_json")
        else:
            yield _entry(number, value)


def _entry(number: int, value: object) -> Entry:
    if not isinstance(value, dict):
        return Entry(number, None, "no_object")
    fields = cast("dict[str, Any]", value)
    for key, read in _FORMATS.items():
        if key in fields:
            try:
                dialog = read(fields)
            except (KeyError, TypeError, ValueError):
                return Entry(number, None, "malformed_dialog")
            if not any(dialog.is_trained):
                return Entry(number, None, "no_trained_turn")
            return Entry(number, dialog)
    return Entry(number, None, "unknown_format")


def _openai(fields: dict[str, Any]) -> Dialog:
    messages: list[dict[str, Any]] = []
    trained: list[bool] = []
    for given in fields["messages"]:
        role = _ROLES[given["role"]]
        message: dict[str, Any] = {"role": role, "content": _text(given.get("content"))}
        for key in ("tool_calls", "tool_call_id", "name", "reasoning_content"):
            if given.get(key):
                message[key] = given[key]
        if role == "assistant":
            trained.append(given.get("weight", 1) > 0)
            if not message["content"] and not message.get("tool_calls"):
                raise ValueError("an assistant message without content")
        messages.append(message)
    return Dialog(tuple(messages), tuple(fields.get("tools") or ()), tuple(trained))


def _sharegpt(fields: dict[str, Any]) -> Dialog:
    messages = [{"role": "system", "content": str(fields["system"])}] if fields.get("system") else []
    messages += [{"role": _ROLES[turn["from"]], "content": _text(turn["value"])} for turn in fields["conversations"]]
    answers = sum(message["role"] == "assistant" for message in messages)
    return Dialog(tuple(messages), (), (True,) * answers)


def _alpaca(fields: dict[str, Any]) -> Dialog:
    instruction, given = _text(fields["instruction"]), _text(fields.get("input"))
    question = f"{instruction}\n\n{given}" if given else instruction
    messages = [{"role": "system", "content": _text(fields["system"])}] if fields.get("system") else []
    for asked, answered in fields.get("history") or ():
        messages += [{"role": "user", "content": _text(asked)}, {"role": "assistant", "content": _text(answered)}]
    messages.append({"role": "user", "content": question})
    messages.append({"role": "assistant", "content": _text(fields["output"])})
    earlier = len(fields.get("history") or ())
    return Dialog(tuple(messages), (), (True,) * (earlier + 1))


def _text(content: object) -> str:
    """Return a content that is text, or a list of text parts.

    Raises:
        TypeError: It is something else, an image for instance.
    """
    match content:
        case None:
            return ""
        case str():
            return content
        case list():
            parts = cast("list[dict[str, Any]]", content)
            return "".join(_text(part["text"]) for part in parts)
        case _:
            raise TypeError(f"a content of type {type(content).__name__}")


_FORMATS: Final[Mapping[str, Callable[[dict[str, Any]], Dialog]]] = {
    "messages": _openai,
    "conversations": _sharegpt,
    "instruction": _alpaca,
}
"""By the key that tells the format."""
