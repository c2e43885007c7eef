"""Traces whose calls asked for no tool, and of which no call continues another: a history that is not what was said.

Somebody else wrote it (a simulated user, a prompt that is put together anew, an instrumentor that tells it otherwise),
so every call stands by itself, and those of one agent with one system prompt and one question follow one another.

Invariant: a trace that gets through here has the steps that ``stitch`` and ``steps`` would give it, provided that no
call of any trace gave the answer that ends a call's history (``Talk.awaits``).
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from ..attributes import Mask
from ..attributes import Rows as Numbers
from ..attribution.broken_output import is_call_as_text
from ..finish_reasons import TOOL_CALL, canonical_finish_reason
from .heard import Heard, heard
from .lanes import UNFINISHED

_MOST_ALIKE: Final = 2
"""An answer that comes more often in one thread may be part of a circle: see ``attribution.loop``."""


class Said(NamedTuple):
    """A call by itself, or a conversation, with what ``lanes.Lane`` has of one."""

    start: tuple[bytes, ...]
    question: str
    answer: str
    first: int = -1
    """The first call of a conversation."""


class Talk(NamedTuple):
    """What was said in a trace."""

    said: list[Said]
    """One for each call."""
    awaits: set[str]
    """The newest answers in the histories of the calls, stripped."""
    answered: set[str]
    """Ids of tool calls that the histories tell the answers of."""


NO_TALK: Final = Talk([], set(), set())


class Talks(NamedTuple):
    """What was said in traces of which no call continues another."""

    talks: Mapping[int, Talk]
    """By the number of the trace."""
    told: pl.DataFrame
    """Of all calls that were asked about: see ``silent.silent_steps``; good for nothing in other traces."""
    texts: list[str]
    """What they answered, stripped."""


class _Start(NamedTuple):
    """What calls have in common that begin alike."""

    digests: tuple[bytes, ...]
    """Of the messages up to the user's first."""
    question: str


class _Begun(NamedTuple):
    """How calls begin."""

    starts: list[_Start]
    start: Numbers
    """Of each call which of them; any for one that is odd."""
    thread: Numbers
    """Of each call a number for its question and all messages of the system."""


class _Calls:
    """All calls at once."""

    def __init__(self, calls: pl.DataFrame, told: Heard) -> None:
        self.told = told
        self.messages = told.messages
        self.ends: Numbers = np.cumsum(told.counts)
        self.begins: Numbers = self.ends - told.counts
        self.traces: Numbers = calls["trace"].to_numpy().astype(np.int64)
        self.call_of: Numbers = np.repeat(np.arange(calls.height), told.counts)
        """The call of each message of an input."""

    def first(self, is_meant: Mask) -> Numbers:
        """Where the first message of each input stands that is meant; the end without one."""
        places = np.append(np.flatnonzero(is_meant), len(self.call_of))
        found: Numbers = places[np.searchsorted(places[:-1], self.begins)]
        return np.minimum(found, self.ends)

    def last(self, is_meant: Mask) -> Numbers:
        """The number of the last message of each input that is meant; -1 without one."""
        places = np.append(-1, np.flatnonzero(is_meant))
        found = places[np.searchsorted(places[1:], self.ends)]
        return np.where(found >= self.begins, self.told.numbers[found], -1)

    def having(self, is_meant: Mask) -> Mask:
        """Which calls have a message in their input that is meant."""
        found = np.zeros(len(self.begins), dtype=np.bool_)
        found[self.call_of[is_meant]] = True
        return found


def read_talks(calls: pl.DataFrame, entries: pl.DataFrame) -> Talks | None:
    """What was said in the traces of ``calls``, less those where a call may continue another or something is unusual.

    Args:
        calls: The calls of traces of which no call asked for a tool, by trace, then by start and id.
        entries: What ``calls`` count: see ``Normalised.entries``.
    """
    found = _Calls(calls, heard(calls, entries))
    told, messages = found.told, found.messages
    if not len(told.numbers):
        return None
    is_odd = found.having(messages.is_odd[told.numbers])
    is_unfit = (pl.col("system_instructions") != "") | pl.col("is_exact") | pl.col("tools").is_null()
    is_odd |= calls.select(is_unfit).to_series().to_numpy()
    begun = _begun(found, is_odd)
    answers, reasons = _answers(calls, told, is_odd)
    thread = _threads(calls, found.traces, begun.thread)
    talks = _talks(found, is_odd, [begun.starts[one] for one in begun.start.tolist()], thread, answers)
    if not talks:
        return None
    order = np.argsort(thread, kind="stable")
    goes_on = thread[order[1:]] == thread[order[:-1]]
    following = np.full(len(order), -1, dtype=np.int64)
    following[order[:-1][goes_on]] = order[1:][goes_on]
    states = (calls["input_messages"] if told.states is None else told.states).alias("state")
    steps = calls.select(
        states,
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("first"),
        messages.told["text"].gather(pl.Series(np.maximum(told.said, 0), dtype=pl.UInt32)).alias("action"),
        pl.lit("[]").alias("tool_results"),
        pl.lit(0, dtype=pl.UInt32).alias("tool_call_count"),
        pl.Series("finish_reason", reasons, dtype=pl.String),
        pl.Series("is_orphan", found.having(messages.is_answer[told.numbers])),
        *followed(calls, states, pl.Series(following).replace(-1, None).cast(pl.UInt32)),
    )
    return Talks(talks, steps, answers)


def followed(calls: pl.DataFrame, states: pl.Series, following: pl.Series) -> list[pl.Series]:
    """What there is to say of ``calls`` because another one is ``following`` in their thread, or none."""
    previous = np.full(calls.height, -1, dtype=np.int64)
    previous[following.drop_nulls().to_numpy()] = np.flatnonzero(following.is_not_null().to_numpy())
    before = pl.Series(previous).replace(-1, None).cast(pl.UInt32)
    # A null that is filled would copy all of the text.
    with_none = pl.concat([states, pl.Series([""], dtype=pl.String)], rechunk=True)
    return [
        with_none.gather(following.fill_null(states.len())).alias("next_state"),
        following.is_null().alias("is_last"),
        before.is_not_null().alias("continues"),
        calls["capture"].gather(before).alias("before"),
        (calls["is_exact"].gather(before) != calls["is_exact"]).fill_null(value=False).alias("is_broken"),
    ]


def _threads(calls: pl.DataFrame, traces: Numbers, threads: Numbers) -> Numbers:
    """Of each call the thread that it belongs to: those of one trace, agent, system prompt and question."""
    agents = calls["agent"].unique()
    agent: Numbers = calls["agent"].cast(pl.Enum(agents)).to_physical().to_numpy().astype(np.int64)
    return (traces * agents.len() + agent) * (int(threads.max(initial=0)) + 1) + threads


def _begun(found: _Calls, is_odd: Mask) -> _Begun:
    """How calls begin; those that begin otherwise than with a question, behind what the system says, are odd."""
    told, messages = found.told, found.messages
    is_system = messages.where("system")[told.numbers]
    firsts = found.first(~is_system)
    can_ask = messages.is_words & messages.where("user")
    is_odd |= (firsts >= found.ends) | ~can_ask[told.numbers[np.minimum(firsts, len(told.numbers) - 1)]]
    is_before = np.arange(len(told.numbers)) < firsts[found.call_of]
    is_odd |= found.having(is_before & ~messages.is_words[told.numbers])
    tells = np.flatnonzero(is_system | (np.arange(len(told.numbers)) <= firsts[found.call_of]))
    keys, counts = told.numbers[tells], np.bincount(found.call_of[tells], minlength=len(is_odd))
    is_new = ~_alike(keys, counts) | (np.diff(found.traces, prepend=-1) != 0)
    is_new[1:] |= is_odd[:-1]
    new = np.flatnonzero(is_new & ~is_odd)
    own = _spread((np.cumsum(counts) - counts)[new], counts[new])
    keys, counts = keys[own], counts[new]
    texts = messages.values("content", keys)
    numbers: list[int] = keys.tolist()
    # Messages of the system, and users', that differ in blanks alone are the same.
    signs: dict[tuple[bool, str | bytes], int] = {}
    alike = np.zeros(messages.told.height, dtype=np.int64)
    for number, system in dict(zip(numbers, is_system[tells[own]].tolist(), strict=True)).items():
        alike[number] = signs.setdefault((system, messages.sign(number, texts[number])), number)
    size = keys.itemsize
    ends = size * np.cumsum(counts)
    begins = ends - size * counts
    openings, told_by = keys.tobytes(), alike[keys].tobytes()
    starts: dict[bytes, int] = {}
    threads: dict[bytes, int] = {}
    read: list[_Start] = []
    which: list[tuple[int, int]] = []
    lengths = (firsts + 1 - found.begins)[new]
    places = zip(begins.tolist(), (begins + size * lengths).tolist(), ends.tolist(), strict=True)
    for begin, middle, end in places:
        opening = openings[begin:middle]
        if opening not in starts:
            starts[opening] = len(read)
            *systems, asked = numbers[begin // size : middle // size]
            digests = [messages.digest(number, "system", texts[number]) for number in systems]
            read.append(_Start((*digests, messages.digest(asked, "user", texts[asked])), texts[asked]))
        systems_and_question = told_by[begin : middle - size] + told_by[middle:end] + told_by[middle - size : middle]
        which.append((starts[opening], threads.setdefault(systems_and_question, len(threads))))
    latest = np.cumsum(np.isin(np.arange(len(is_odd)), new)) - 1
    start, thread = np.array(which or [(0, 0)], dtype=np.int64)[np.maximum(latest, 0)].T
    return _Begun(read or [_Start((b"",), "")], start, thread)


def _alike(keys: Numbers, counts: Numbers) -> Mask:
    """Whether each run of ``keys`` is like the one before it."""
    found = np.zeros(len(counts), dtype=np.bool_)
    found[1:] = counts[1:] == counts[:-1]
    runs = np.flatnonzero(found)
    lengths = counts[runs]
    places = _spread((np.cumsum(counts) - counts)[runs], lengths)
    differs = keys[places] != keys[places - np.repeat(lengths, lengths)]
    found[np.repeat(runs, lengths)[differs]] = False
    return found


def _spread(begins: Numbers, lengths: Numbers) -> Numbers:
    """The places of runs that begin somewhere."""
    ends = np.cumsum(lengths)
    return np.arange(int(lengths.sum())) + np.repeat(begins - ends + lengths, lengths)


def _answers(calls: pl.DataFrame, told: Heard, is_odd: Mask) -> tuple[list[str], list[str]]:
    """Text (stripped) and finish reason of each call's answer; what is no plain answer is odd."""
    messages = told.messages
    is_odd |= (told.said < 0) | ~(messages.is_words & ~messages.is_odd & messages.where("assistant"))[told.said]
    said = pl.Series(np.maximum(told.said, 0), dtype=pl.UInt32)
    texts: list[str] = [text.strip() for text in messages.told["content"].gather(said).to_list()]
    is_odd |= np.array([not text or is_call_as_text(text) for text in texts], dtype=np.bool_)
    reasons: list[str] = calls["finish_reason"].to_list()
    if "" in reasons:
        notes: list[str] = messages.told["note"].gather(said).to_list()
        reasons = [given or canonical_finish_reason(note) for given, note in zip(reasons, notes, strict=True)]
    known = pl.Series("reason", reasons, dtype=pl.String)
    is_unfit = known.is_in(list(_UNFIT)) | ((known == "") & calls["streams"])
    is_odd |= is_unfit.to_numpy()
    return texts, reasons


_UNFIT: Final = UNFINISHED | {TOOL_CALL}


def _talks(found: _Calls, is_odd: Mask, starts: list[_Start], thread: Numbers, answers: list[str]) -> dict[int, Talk]:
    """What was said in each trace that has no odd call, and none that waits for an answer of another one."""
    told, messages = found.told, found.messages
    awaited = found.last(messages.where("assistant")[told.numbers])
    texts = messages.values("content", awaited[awaited >= 0])
    newest = [texts[number].strip() if number >= 0 else None for number in awaited.tolist()]
    answered = _answered(found)
    firsts = np.flatnonzero(np.diff(found.traces, prepend=-1))
    is_whole = ~np.logical_or.reduceat(is_odd, firsts) if len(firsts) else firsts
    talks: dict[int, Talk] = {}
    threads: list[int] = thread.tolist()
    lasts = np.append(firsts[1:], len(found.traces))
    for first, last, trace in zip(
        *(part[is_whole].tolist() for part in (firsts, lasts, found.traces[firsts])), strict=True
    ):
        awaits = {text for text in newest[first:last] if text is not None}
        own = answers[first:last]
        if awaits.isdisjoint(own) and not _has_circle(own, threads[first:last]):
            said = [
                Said(start.digests, start.question, answer)
                for start, answer in zip(starts[first:last], own, strict=True)
            ]
            talks[trace] = Talk(said, awaits, answered.get(trace, set()))
    return talks


def _has_circle(answers: Sequence[str], threads: Sequence[int]) -> bool:
    """Whether an answer comes so often in one thread that it may be part of a circle."""
    if len(set(answers)) > len(answers) - _MOST_ALIKE:
        return False
    return max(Counter(zip(answers, threads, strict=True)).values()) > _MOST_ALIKE


def _answered(found: _Calls) -> dict[int, set[str]]:
    """Of each trace the ids of tool calls that the histories tell the answers of."""
    told, messages = found.told, found.messages
    places = np.flatnonzero(messages.is_answer[told.numbers])
    most = messages.told.height
    pairs = np.unique(found.traces[found.call_of[places]] * most + told.numbers[places])
    ids = messages.values("id", pairs % most)
    answered: dict[int, set[str]] = defaultdict(set)
    for trace, number in zip((pairs // most).tolist(), (pairs % most).tolist(), strict=True):
        answered[trace].add(ids[number])
    return answered
