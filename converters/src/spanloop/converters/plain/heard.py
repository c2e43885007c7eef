"""The messages that calls heard and said, by number: as normalisation counted them, else read out of their JSON.

Invariant: a message has what ``messages`` reads in it. Of a call that repeats the input of the one before it in its
trace only the rest is read.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from ..attributes import Mask
from ..attributes import Rows as Numbers
from ..ragged import flat
from ..usual import Call, Response, Text, Typed
from .pieces import Listed, Piece, digest_of_text, read_lists

_TOLD: Final = ("role", "content", "id", "text", "note")


class Messages(NamedTuple):
    """Messages by their number; one with several answers of tools has as many numbers."""

    told: pl.DataFrame
    """``role``, ``content``, ``id`` (of the call that is answered), ``text`` (the JSON) and ``note``."""
    is_odd: Mask
    """Whether no plain call has such a message."""
    is_answer: Mask
    """Whether a tool answers."""
    is_words: Mask
    """Whether it is text alone, and not nothing."""
    digests: Mapping[int, bytes]
    """Those that the text alone does not give."""

    def where(self, role: str) -> Mask:
        """Which of them have that role."""
        return (self.told["role"] == role).fill_null(value=False).to_numpy()

    def values(self, column: str, numbers: Numbers) -> dict[int, str]:
        """What a column of ``told`` says of the messages of some ``numbers``."""
        is_meant = np.zeros(self.told.height, dtype=np.bool_)
        is_meant[numbers] = True
        distinct = np.flatnonzero(is_meant)
        found: list[str] = self.told[column].gather(pl.Series(distinct, dtype=pl.UInt32)).to_list()
        return dict(zip(distinct.tolist(), found, strict=True))

    def digest(self, number: int, role: str, text: str) -> bytes:
        """``Message.digest`` of a message that has this role and text."""
        return self.digests.get(number) or digest_of_text(role, text)

    def sign(self, number: int, text: str) -> str | bytes:
        """What messages of one role have in common exactly if their digests are the same."""
        return self.digests.get(number) or text.strip()


class Heard(NamedTuple):
    """Of each call what it heard and said."""

    messages: Messages
    numbers: Numbers
    """The messages of all inputs, one behind the other."""
    counts: Numbers
    """How many of them each call has; none where they cannot be read."""
    said: Numbers
    """The number of the answer; -1 where that is not one message."""
    states: pl.Series | None
    """The JSON of the input; None where all of it was written like that."""


def heard(calls: pl.DataFrame, entries: pl.DataFrame) -> Heard:
    """The messages of each of ``calls``.

    Args:
        calls: Model calls by trace, then by start and id.
        entries: What they count: see ``Normalised.entries``.
    """
    is_counted = calls.select(pl.col("seen").is_not_null() & pl.col("said").is_not_null()).to_series()
    counted = calls.filter(is_counted)
    numbers, ends = flat(counted["seen"])
    own = counted["said"]
    said = np.where(own.list.len().to_numpy() == 1, own.list.first().fill_null(0).cast(pl.Int64).to_numpy(), -1)
    messages = Messages(
        entries.select(_TOLD),
        np.zeros(entries.height, dtype=np.bool_),
        (entries["id"] != "").fill_null(value=False).to_numpy(),
        (entries["id"] == "").fill_null(value=False).to_numpy(),
        {},
    )
    found = Heard(messages, numbers.astype(np.int64), np.diff(ends), said, None)
    return found if counted.height == calls.height else _with_read(found, calls, is_counted.to_numpy())


def _with_read(counted: Heard, calls: pl.DataFrame, is_counted: Mask) -> Heard:
    """``counted`` calls among all ``calls``, of which the others are read."""
    reader = _Reader(len(counted.messages.is_odd))
    rest = calls.filter(pl.Series(~is_counted))
    read = reader.read(*(rest[name].to_list() for name in ("trace", "input_messages", "output_messages")))
    ends = np.cumsum(counted.counts)
    numbers: list[Numbers] = [np.zeros(0, dtype=np.int64)] * calls.height
    own = zip(np.flatnonzero(is_counted).tolist(), (ends - counted.counts).tolist(), ends.tolist(), strict=True)
    for place, start, end in own:
        numbers[place] = counted.numbers[start:end]
    said = np.full(calls.height, -1, dtype=np.int64)
    said[is_counted] = counted.said
    states: list[str | None] = [None] * calls.height
    for place, (own_numbers, answer, state) in zip(np.flatnonzero(~is_counted).tolist(), read, strict=True):
        numbers[place], said[place], states[place] = own_numbers, answer, state
    return Heard(
        reader.messages(counted.messages),
        np.concatenate(numbers),
        np.array([len(found) for found in numbers], dtype=np.int64),
        said,
        pl.Series(states, dtype=pl.String).fill_null(calls["input_messages"]),
    )


_Read = tuple[Numbers, int, str | None]
"""The messages of a call's input, its answer, and the JSON of the input where it was not written like that."""

_NOTHING: Final[Numbers] = np.zeros(0, dtype=np.int64)


class _Reader:
    """Numbers messages as they come."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._rows: list[tuple[str, str, str, str, str]] = []
        self._flags: list[tuple[bool, bool, bool]] = []
        self._digests: dict[int, bytes] = {}

    def read(self, traces: Sequence[int], inputs: Sequence[str], outputs: Sequence[str]) -> list[_Read]:
        """What each call heard and said; no messages where something in them is unusual."""
        answers = read_lists(outputs)
        news, goes_on = _news(traces, inputs)
        found: list[_Read] = []
        numbers, json, text = _NOTHING, "", ""
        for own, answer, is_longer, given in zip(read_lists(news), answers, goes_on, inputs, strict=True):
            if own is None or (is_longer and not len(numbers)):
                numbers = _NOTHING
                found.append((numbers, -1, None))
                continue
            new = np.array([number for message in own.messages for number in self._number(message, "")], np.int64)
            before, numbers = numbers, np.concatenate([numbers, new]) if is_longer else new
            json = json if is_longer else ""
            if json or not own.is_as_written:
                told = [json or text[1:-1]] if is_longer and len(before) else []
                json = ",".join([*told, own.json] if own.json else told)
            text = given
            found.append((numbers, self._answer(answer), f"[{json}]" if json else None))
        return found

    def _answer(self, listed: Listed | None) -> int:
        if listed is None or len(listed.messages) != 1:
            return -1
        found = self._number(listed.messages[0], listed.json)
        return found[0] if len(found) == 1 else -1

    def _number(self, message: Piece | Typed, json: str) -> list[int]:
        """New numbers of ``message``."""
        parts = message.parts
        texts = [part.content for part in parts if isinstance(part, Text)]
        ids = [part.id for part in parts if isinstance(part, Response)]
        is_text = len(texts) == len(parts)
        asks = any(isinstance(part, Call) for part in parts)
        # An answer to nobody in particular may continue any call that asked for a tool: see ``stitch.untold``.
        is_nobodys = not all(ids) or (message.role == "tool" and not ids)
        is_odd = asks or is_nobodys or (not is_text and message.role in {"system", "assistant"})
        found: list[int] = []
        for identity in ids or [""]:
            number = self._first + len(self._rows)
            self._rows.append((message.role, "".join(texts), identity, json, message.finish_reason))
            self._flags.append((is_odd, bool(ids), is_text and bool(parts)))
            if isinstance(message, Piece) and message.digest not in {
                b"",
                digest_of_text(message.role, "".join(texts)),
            }:
                self._digests[number] = message.digest
            found.append(number)
        return found

    def messages(self, counted: Messages) -> Messages:
        """Those that were ``counted``, and the new ones behind them."""
        told = pl.DataFrame(self._rows, schema=counted.told.schema, orient="row")
        flags = np.array(self._flags, dtype=np.bool_).reshape(-1, 3)
        return Messages(
            pl.concat([counted.told, told]),
            np.concatenate([counted.is_odd, flags[:, 0]]),
            np.concatenate([counted.is_answer, flags[:, 1]]),
            np.concatenate([counted.is_words, flags[:, 2]]),
            self._digests,
        )


def _news(traces: Sequence[int], inputs: Sequence[str]) -> tuple[list[str], list[bool]]:
    """What is new in each input, as a list, and whether it goes on where the input before it in its trace ended."""
    found: list[str] = []
    goes_on: list[bool] = []
    trace, before = -1, ""
    for own, text in zip(traces, inputs, strict=True):
        length = len(before)
        is_longer = own == trace and length > 0 and text.startswith(before) and text[length : length + 1] in {",", "]"}
        goes_on.append(is_longer)
        news = "[" + text[length + 1 :] if is_longer and length + 1 < len(text) else "[]" if is_longer else text
        found.append(news)
        trace, before = own, text[:-1] if text[-2:] == "}]" else ""
    return found, goes_on
