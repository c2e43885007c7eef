"""Helpers of the readers of spans: values out of attributes' text, and tables of attribute names.

Invariant: reading never raises: text that should be JSON and is not counts as plain text.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeVar, cast

import msgspec
import polars as pl

from spanloop.messages import MalformedMessagesError, dump, parse_json
from spanloop.messages.json_values import Fields, python_object
from spanloop.messages.unfinished import UnfinishedText, is_unfinished, is_unfinished_content

from .base import attr

_OBJECT_OF_RAW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


_Value = TypeVar("_Value", bound="str | Sequence[Fields]")


def of_keys(keys: Sequence[str]) -> pl.Expr:
    """The first of the attributes that is there and not empty; null without one."""
    return pl.coalesce(pl.when(attr(key) != "").then(attr(key)) for key in keys)


def is_set(key: str) -> pl.Expr:
    """Whether the attribute is there and not empty."""
    return (attr(key) != "").fill_null(value=False)


def decoded(text: str) -> object:
    """The JSON value of ``text``, else the Python literal that it is the repr of, else the text."""
    stripped = text.strip()
    if stripped[:1] not in {"{", "[", '"'}:
        return text
    try:
        return parse_json(stripped)
    except MalformedMessagesError:
        literal = python_object(stripped)
        return text if literal is None else literal


def decoded_messages(text: str, attribute: str) -> object:
    """As ``decoded``, of an attribute with messages; text that was cut within them is marked as such."""
    value = decoded(text)
    return UnfinishedText(text, attribute) if value is text and is_unfinished(text) else value


def decoded_content(text: str, attribute: str) -> object:
    """As ``decoded``, of one message's content, which may be any text, or a list of parts."""
    value = decoded(text)
    return UnfinishedText(text, attribute) if value is text and is_unfinished_content(text) else value


def first_messages(attributes: Mapping[str, str], *keys: str) -> object:
    """The decoded messages of the first of the attributes that is not empty; None without one."""
    key = next((key for key in keys if attributes.get(key)), "")
    return decoded_messages(attributes[key], key) if key else None


def as_unfinished(value: object) -> UnfinishedText | None:
    """``value`` where it is text that was cut within a list."""
    return value if isinstance(value, UnfinishedText) else None


def decoded_except(text: str, keys: Collection[str]) -> Fields:
    """As ``fields_of``, without the values of ``keys``, which are null."""
    try:
        raw = _OBJECT_OF_RAW.decode(text) if text.lstrip()[:1] == "{" else {}
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return fields_of(text)
    return {key: None if key in keys else parse_json(bytes(value)) for key, value in raw.items()}


def fields_of(text: str) -> Fields:
    """The JSON object of ``text``; empty when it is none."""
    value = decoded(text) if text else None
    return cast("Fields", value) if isinstance(value, dict) else {}


def as_text(value: object) -> str:
    """A value as the text of an attribute: empty for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else dump(value)


def first(attributes: Mapping[str, str], *keys: str) -> str:
    """The first of the attributes that is there and not empty."""
    return next((attributes[key] for key in keys if attributes.get(key)), "")


def known(columns: Mapping[str, _Value]) -> dict[str, _Value]:
    """The columns that are not empty."""
    return {name: value for name, value in columns.items() if value}


def parameters(given: Mapping[str, object]) -> dict[str, str]:
    """Sampling parameters out of a request, under their canonical names."""
    spelled: Iterable[tuple[str, tuple[str, ...]]] = (
        ("temperature", ("temperature",)),
        ("top_p", ("top_p", "topP")),
        ("max_tokens", ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxTokens", "maxOutputTokens")),
        ("seed", ("seed",)),
        ("is_streaming", ("stream",)),
    )
    settings: dict[str, str] = {}
    for name, keys in spelled:
        for key in keys:
            if key in given and _is_given(given[key]):
                settings[name] = as_text(given[key])
                break
    return known(settings)


def _is_given(value: object) -> bool:
    return value not in _UNSET and not (isinstance(value, str) and _OBJECT.match(value))


_UNSET: Final = (None, "Infinity", "inf", "NOT_GIVEN")
"""Values of a parameter that nobody set."""

_OBJECT: Final = re.compile(r"<.* object at 0x")
"""The repr of an object of no value, such as OpenAI's ``Omit``."""
