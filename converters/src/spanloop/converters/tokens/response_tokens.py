"""Token ids and log-probabilities in the values of span attributes, and those of a response's further choices.

Invariant: a span with one choice, as almost all are, costs no decoding here. A further choice whose ids cannot be read
has none.
"""

import re
from collections.abc import Mapping
from itertools import count
from math import nan
from typing import Final, cast

import polars as pl

from spanloop.messages.json_values import Fields, as_fields, as_list

from ..dialects.rows import decoded
from ..reading.attributes import Attributes

_LOGPROB: Final = ("logprob", "log_prob", "token_logprob")
_NESTED: Final = r"^\s*\[\s*\[[^\]]*\]\s*,"
"""One list a choice."""

_SECOND: Final = r"""["']index["']\s*:\s*1\b"""
"""In a response whole: the index of a second choice."""

_FIRST: Final = re.compile(r"((?:^|\.)choices\.|token_ids\.|logprobs\.(?:content\.|token_logprobs\.)?)0(?=\.|$)")
"""Place of the first choice's index in a key."""

_SCHEMA: Final = {
    "_row": pl.UInt32(),
    "choice_index": pl.UInt16(),
    "response": pl.List(pl.UInt32),
    "logprobs": pl.List(pl.Float32),
}


def further_choices(roles: pl.DataFrame, attributes: Attributes) -> pl.DataFrame:
    """The second and further choices that spans carry: ``_row``, ``choice_index``, ``response`` and ``logprobs``.

    Args:
        roles: By ``_row`` the texts of response, log-probabilities and whole response, each beside its key.
        attributes: Of all rows.
    """
    keys = roles["response:key"].unique().drop_nulls().to_list()
    of_several = [key for key in keys if (second := _of_choice(key, 1)) != key and second in attributes]
    may_have = (
        pl.col("response").str.contains(_NESTED)
        | pl.col("whole").str.contains(_SECOND)
        | pl.col("response:key").is_in(of_several)
    )
    names = ("_row", "response", "response:key", "logprobs", "logprobs:key", "whole")
    candidates = roles.filter(may_have.fill_null(value=False)).select(names).sort("_row")
    if candidates.is_empty():
        return pl.DataFrame(schema=_SCHEMA)
    texts = attributes.texts(candidates["_row"].to_numpy())
    read = [
        (row[0], *choice)
        for row, values in zip(candidates.iter_rows(), texts, strict=True)
        for choice in _read(row, values)
    ]
    return pl.DataFrame(read, schema=_SCHEMA, orient="row")


def _read(row: tuple[object, ...], values: Mapping[str, str]) -> list[tuple[int, list[int], list[float]]]:
    """Index, ids and log-probabilities of each further choice."""
    _, response, response_key, logprobs, logprobs_key, whole = (str(value or "") for value in row)
    choices = response_choices(decoded(whole))
    choices_read: list[tuple[int, list[int], list[float]]] = []
    for index in count(1):
        choice = choices[index] if index < len(choices) else {}
        ids = _of_index(response, response_key, values, index) or choice_token_ids(choice)
        if not ids:
            return choices_read
        given = _of_index(logprobs, logprobs_key, values, index) or choice.get("logprobs")
        try:
            choices_read.append((index, token_ids(ids) or [], logprobs_in(given) or []))
        except ValueError:
            choices_read.append((index, [], []))
    return choices_read


def _of_index(text: str, key: str, values: Mapping[str, str], index: int) -> object:
    """Value of one choice, from the list of all choices or from a key of its own."""
    choice_key = _of_choice(key, index)
    if choice_key != key and choice_key in values:
        return decoded(values[choice_key])
    listed = as_list(decoded(text)) if re.match(_NESTED, text) else []
    return listed[index] if index < len(listed) else None


def _of_choice(key: str, index: int) -> str:
    """The key that has of another choice what ``key`` has of the first."""
    return _FIRST.sub(rf"\g<1>{index}", key)


def response_choices(response: object) -> list[Fields]:
    """The choices of a response whole, or of a list of them."""
    fields = as_fields(response)
    return list(map(as_fields, as_list(fields.get("choices")) if fields else as_list(response)))


def choice_token_ids(choice: Fields) -> object:
    """The value under which a choice of a response has its token ids; None without one."""
    return choice.get("token_ids", as_fields(choice.get("provider_specific_fields")).get("token_ids"))


def _first_list(value: object) -> list[object]:
    """The list, or of a list of lists (one a choice) the first."""
    listed = as_list(value)
    head = listed[0] if listed else None
    return cast("list[object]", head) if isinstance(head, list) else listed


def token_ids(value: object) -> list[int] | None:
    """Token ids out of a list, or out of the first of several lists.

    Raises:
        ValueError: When something in it is no token id.
    """
    listed = _first_list(value)
    for item in listed:
        if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < 2**32:
            raise ValueError(repr(item)[:80])
    return cast("list[int]", listed) or None


def logprobs_in(value: object) -> list[float] | None:
    """Natural log-probabilities out of numbers, OpenAI's objects or an object that holds either; None without any."""
    for key in ("content", "token_logprobs", "logprobs"):
        value = as_fields(value).get(key, value)
    listed = _first_list(value)
    return [_logprob(item) for item in listed] or None


def _logprob(item: object) -> float:
    fields: Fields = as_fields(item)
    number = next((fields[key] for key in _LOGPROB if key in fields), None) if fields else item
    return float(number) if isinstance(number, (int, float)) and not isinstance(number, bool) else nan
