"""Traces of one conversation in which every call goes on where the call before it ended: read all at once.

Invariant: a trace that gets through here is one that ``lanes`` would let through, with the same steps. What a call has
beyond the call before is found in columns, decoded for all calls together, and looked at once. A trace with anything
else in it (a second conversation, a tool that is told by its name, an answer that is spelled otherwise in the history)
is left to ``lanes``.
"""

from collections.abc import Sequence
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from ..attribution import offered_tools
from ..attribution.broken_output import is_call_as_text
from ..finish_reasons import TOOL_CALL, canonical_finish_reason
from ..messages import digest
from ..ragged import binary
from ..tool_results import error_in_text
from ..usual import Call, Response, Text, Typed
from .lanes import ROUNDS, UNFINISHED, Answer, instructions
from .pieces import NotPlainError, Piece, Result, decoded_lists, digest_of, written_lines
from .screen import TELLS_OF_NO_ERROR
from .talk import Said

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


class Chains(NamedTuple):
    """What was read."""

    is_read: Mask
    """Whether each of the traces given was."""
    told: pl.DataFrame
    """Of the calls of those: see ``silent.silent_steps``."""
    said: list[Said]
    """Of each of those traces: its conversation."""
    answers: list[list[Answer]]
    """What its tools answered."""
    texts: Sequence[str]
    """What its calls answered in words, stripped."""


class _Rows(NamedTuple):
    """Calls of traces that may be such conversations."""

    calls: pl.DataFrame
    """With ``place`` among the calls given; once they are read, with the JSON lists ``said`` (the answer) and ``new``
    (what the input has beyond it and the input before), and ``bare`` (the answer as it comes back)."""
    said: list[list[Typed]]
    new: list[list[Typed]]
    """Both empty where something unusual is in the list."""

    def only(self, is_fine: Mask) -> "_Rows":
        """Less the traces of which not every call is fine."""
        if is_fine.all():
            return self
        begins = _begins(self.calls)
        kept = np.logical_and.reduceat(is_fine, np.flatnonzero(begins))[np.cumsum(begins) - 1]
        return _Rows(
            self.calls.filter(pl.Series(kept)),
            [said for said, stays in zip(self.said, kept, strict=False) if stays],
            [new for new, stays in zip(self.new, kept, strict=False) if stays],
        )


class _Opening(NamedTuple):
    """How a conversation begins."""

    start: tuple[bytes, ...]
    """Digests of the messages up to the user's first."""
    question: str
    """That one's text."""
    before: str
    """JSON that stands before the messages in the first state: a system prompt that was told beside them."""


class _Seen(NamedTuple):
    """What stands in the messages, looked at one by one."""

    asked: list[Call]
    """One call's after another's."""
    asked_counts: Numbers
    texts: list[str]
    """Of the answers, stripped."""
    responses: list[Response]
    response_counts: Numbers
    """Of each call: how many its input has, which answer the call before."""
    openings: list[_Opening]
    """Of each trace."""


def is_next() -> pl.Expr:
    """Whether times, service and system prompt let a call go on where the one before it in the column ended."""
    ended = pl.col("Timestamp") + pl.col("Duration")
    is_later = (ended.shift() <= pl.col("Timestamp")) & (pl.col("Timestamp").shift() < pl.col("Timestamp"))
    alike = [pl.col(name) == pl.col(name).shift() for name in ("trace", "ServiceName", "system_instructions")]
    return pl.all_horizontal(is_later, *alike).fill_null(value=False)


def read_chains(calls: pl.DataFrame, tools: pl.DataFrame) -> Chains | None:
    """Read what is one conversation; None where nothing is.

    Args:
        calls: Model calls by trace, start and id, each trace whole.
        tools: The tools' spans of the same traces (and others), in the same order.
    """
    rows = _with_messages(_growing(calls))
    while not rows.calls.is_empty():
        seen = _seen(rows)
        if isinstance(seen, _Seen):
            found = _found(rows, seen, tools)
            if isinstance(found, Chains):
                begins = _begins(calls)
                is_read = np.isin(calls["trace"].to_numpy()[begins], rows.calls["trace"].to_numpy())
                return found._replace(is_read=is_read)
            rows = rows.only(found)
        else:
            rows = rows.only(seen)
    return None


def _begins(calls: pl.DataFrame) -> Mask:
    """Whether each call is the first of its trace."""
    trace = calls["trace"].to_numpy()
    return np.concatenate([[True], trace[1:] != trace[:-1]])[: len(trace)]


def _bytes(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.Binary)


_FURTHER: Final = frozenset({"user", "tool"})
"""Roles of what comes after an answer."""

_KEPT: Final = _bytes("input_messages").bin.size().shift() - 1
"""How much of the input before comes again: all but its last bracket."""


def _growing(calls: pl.DataFrame) -> _Rows:
    """The traces in which every call's input begins with that of the call before."""
    text, answer = _bytes("input_messages"), _bytes("output_messages")
    is_list = [one.bin.starts_with(b"[{") & one.bin.ends_with(b"}]") for one in (text, answer)]
    comes_again = text.bin.starts_with(text.bin.slice(0, text.bin.size() - 1).shift())
    begins = pl.Series(_begins(calls))
    is_fine = calls.select(pl.all_horizontal(*is_list, (is_next() & comes_again).fill_null(value=False) | begins))
    return _Rows(calls.with_row_index("place"), [], []).only(is_fine.to_series().to_numpy())


def _with_messages(rows: _Rows) -> _Rows:
    """What the calls answered, and what is new in their inputs."""
    if rows.calls.is_empty():
        return rows
    said, json = decoded_lists(rows.calls["output_messages"])
    rows = _Rows(rows.calls.with_columns(json.alias("said")), said, []).only(
        np.array([len(messages) == 1 for messages in said])
    )
    reasons = pl.Series("given_reason", [one.finish_reason for (one,) in rows.said], dtype=pl.String)
    calls = rows.calls.with_columns(reasons)
    calls = calls.with_columns(_bare(), _news(calls).alias("text"))
    rows = rows._replace(calls=calls).only(
        calls.select(pl.all_horizontal(pl.col("bare", "text").is_not_null())).to_series().to_numpy()
    )
    if rows.calls.is_empty():
        return rows
    new, json = decoded_lists(rows.calls["text"])
    rows = _Rows(rows.calls.with_columns(json.alias("new")), rows.said, new)
    return rows.only(np.array([bool(messages) for messages in new]))


def _bare() -> pl.Expr:
    """The answer without its finish reason; null where that is not its last field."""
    reason, said = pl.col("given_reason"), pl.col("said")
    end = pl.concat_str(pl.lit(',"finish_reason":"'), reason, pl.lit('"}]'))
    shorter = pl.concat_str(said.str.strip_suffix(end), pl.lit("}"))
    return (
        pl.when(reason == "")
        .then(said.str.strip_suffix("]"))
        .when(said.str.ends_with(end))
        .then(shorter)
        .str.strip_prefix("[")
        .alias("bare")
    )


def _news(calls: pl.DataFrame) -> pl.Series:
    """The list of messages that an input has beyond the input and the answer before; null where those come otherwise.

    The answer has to come as it was spelled, less its finish reason.
    """
    text, answer, reason = _bytes("input_messages"), _bytes("output_messages"), pl.col("given_reason")
    size, start, closing = answer.bin.size(), pl.col("start"), pl.col("closing")
    wide, narrow = (
        pl.concat_str(pl.lit(before), reason, pl.lit('"}]')).cast(pl.Binary)
        for before in (', "finish_reason": "', ',"finish_reason":"')
    )
    end = (
        pl.when(reason == "")
        .then(size - 2)
        .when(answer.bin.ends_with(wide))
        .then(size - wide.bin.size())
        .when(answer.bin.ends_with(narrow))
        .then(size - narrow.bin.size())
    )
    is_wide = text.bin.slice(_KEPT, 2) == b", "
    # One column after another: as one expression each would be found again wherever it is used.
    steps = calls.select(
        text.alias("text"),
        spelled=answer.bin.slice(1, end - 1).shift(),
        start=pl.when(is_wide).then(_KEPT + 2).when(text.bin.slice(_KEPT, 1) == b",").then(_KEPT + 1),
        comma=pl.when(is_wide).then(pl.lit(b"}, ")).otherwise(pl.lit(b"},")),
    )
    text, spelled, comma = pl.col("text"), pl.col("spelled"), pl.col("comma")
    steps = steps.with_columns(closing=start + spelled.bin.size())
    comes_again = (text.bin.slice(start, closing - start) == spelled) & (
        text.bin.slice(closing, comma.bin.size()) == comma
    )
    rest = steps.select(rest=text.bin.slice(closing + comma.bin.size()).cast(pl.String), comes_again=comes_again)
    return rest.select(
        pl.when(pl.Series(_begins(calls)))
        .then(calls["input_messages"])
        .when("comes_again")
        .then(pl.concat_str(pl.lit("["), "rest"))
    ).to_series()


def _seen(rows: _Rows) -> _Seen | Mask:
    """Look at each message once; or which calls are fine, where not all are."""
    odd: list[int] = []
    asked, asked_counts, texts = _answers(rows, odd)
    opener = _Opener(rows.calls)
    openings: list[_Opening] = []
    for place in np.flatnonzero(_begins(rows.calls)).tolist():
        opening = opener.read(place, rows.new[place])
        openings += [opening] if opening else []
        odd += [] if opening else [place]
    responses, response_counts = _responses(rows, odd)
    if odd:
        is_fine = np.ones(rows.calls.height, dtype=np.bool_)
        is_fine[odd] = False
        return is_fine
    return _Seen(asked, np.array(asked_counts), texts, responses, np.array(response_counts), openings)


def _answers(rows: _Rows, odd: list[int]) -> tuple[list[Call], list[int], list[str]]:
    """What the calls ask for, how often each does, and what each says; ``odd`` gets those that are unusual."""
    asked: list[Call] = []
    counts, texts = [0] * len(rows.said), [""] * len(rows.said)
    for place, (said,) in enumerate(rows.said):
        parts = said.parts
        part = parts[0] if len(parts) == 1 else None
        if isinstance(part, Call):
            asked.append(part)
            counts[place] = 1
        elif isinstance(part, Text):
            texts[place] = part.content.strip()
        else:
            own = [one for one in parts if isinstance(one, Call)]
            words = [one.content for one in parts if isinstance(one, Text)]
            if len(own) + len(words) < len(parts) or len({one.id for one in own}) < len(own):
                odd.append(place)
            asked += own
            counts[place] = len(own)
            texts[place] = "".join(words).strip()
    odd += [place for place, (said,) in enumerate(rows.said) if said.role != "assistant"]
    return asked, counts, texts


def _responses(rows: _Rows, odd: list[int]) -> tuple[list[Response], list[int]]:
    """What the tools answered in what is new, and how often in each call's; ``odd`` gets those that are unusual."""
    found: list[Response] = []
    counts = [0] * len(rows.new)
    for place in np.flatnonzero(~_begins(rows.calls)).tolist():
        for message in rows.new[place]:
            parts = message.parts
            part = parts[0] if len(parts) == 1 else None
            if isinstance(part, Response):
                found.append(part)
                counts[place] += 1
            else:
                own = [one for one in parts if isinstance(one, Response)]
                found += own
                counts[place] += len(own)
            if message.role not in _FURTHER:
                odd.append(place)
    return found, counts


class _Opener:
    """Reads how conversations begin."""

    def __init__(self, calls: pl.DataFrame) -> None:
        self._system: list[str] = calls["system_instructions"].to_list()
        self._pieces: dict[str, Piece | None] = {}
        self._digests: dict[tuple[str, str], bytes] = {}

    def read(self, call: int, messages: Sequence[Typed]) -> _Opening | None:
        """The beginning of the conversation that ``call`` begins with ``messages``; None for an unusual one."""
        found: list[bytes] = []
        question: str | None = None
        says_something = False
        before = ""
        if self._system[call] and not any(message.role == "system" for message in messages):
            piece = self._instructions(self._system[call])
            if piece is None:
                return None
            found.append(digest_of(piece))
            says_something = bool(piece.parts)
            before = f"{piece.json},"
        for message in messages:
            words = [part.content for part in message.parts if isinstance(part, Text)]
            if len(words) < len(message.parts) or message.role not in {
                "user",
                "system" if question is None else "user",
            }:
                return None
            says_something = says_something or bool(words)
            if question is None:
                text = "".join(words)
                found.append(self._digest(message.role, text.strip()))
                question = text if message.role == "user" else None
        return _Opening(tuple(found), question, before) if question is not None and says_something else None

    def _instructions(self, text: str) -> Piece | None:
        if text not in self._pieces:
            try:
                self._pieces[text] = instructions(text)
            except NotPlainError:
                self._pieces[text] = None
        return self._pieces[text]

    def _digest(self, role: str, text: str) -> bytes:
        found = self._digests.get((role, text))
        if found is None:
            found = self._digests[role, text] = digest((role, f"text:{text}"))
        return found


def _found(rows: _Rows, seen: _Seen, tools: pl.DataFrame) -> Chains | Mask:
    """What there is to say of the calls; or which are fine, where not all are."""
    calls, counts = rows.calls, seen.asked_counts
    begins = _begins(calls)
    is_fine: Mask = counts == np.append(np.where(begins, 0, seen.response_counts)[1:], 0)
    if not is_fine.all():
        return is_fine
    of_call, trace = np.repeat(np.arange(calls.height), counts), calls["trace"].to_numpy()
    ids, named = [asked.id for asked in seen.asked], [asked.name for asked in seen.asked]
    contents = [response.response for response in seen.responses]
    answers_it = [bool(one) and one == other.id for one, other in zip(ids, seen.responses, strict=True)]
    places, has_all = _spans_of(trace, trace[of_call], ids, tools)
    reasons = _reasons(calls)
    is_fine = has_all & _has_ended(calls, reasons, seen) & ~_may_circle(trace, of_call, contents, seen)
    is_fine[of_call[~np.array(answers_it, dtype=np.bool_) | ~_is_offered(calls, of_call, named) | _fails(contents)]] = (
        False
    )
    if not is_fine.all():
        return is_fine
    ran = pl.lit(pl.Series(places, dtype=pl.Int64).replace(-1, None))
    spans = tools.select(pl.col("Duration").gather(ran).fill_null(0), pl.col("SpanId").gather(ran).fill_null(""))
    durations, span_ids = spans["Duration"].to_list(), spans["SpanId"].to_list()
    results = list(map(Result, ids, named, repeat("ok"), repeat(""), contents, durations, span_ids))
    ends: list[int] = np.cumsum(counts).tolist()
    of_calls = [results[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    starts = np.flatnonzero(begins)
    lasts: list[int] = np.append(starts[1:], len(begins)).tolist()
    answers = list(zip(seen.asked, contents, strict=True))
    return Chains(
        is_read=begins,
        told=_told(calls, seen, begins, reasons, written_lines(of_calls)),
        said=[
            Said(opening.start, opening.question, seen.texts[last - 1])
            for opening, last in zip(seen.openings, lasts, strict=True)
        ],
        answers=[
            answers[ends[start - 1] if start else 0 : ends[last - 1]]
            for start, last in zip(starts.tolist(), lasts, strict=True)
        ],
        texts=seen.texts,
    )


def _reasons(calls: pl.DataFrame) -> pl.Series:
    """The canonical finish reason of each call: the call's own, else the answer's."""
    given = calls["given_reason"].unique()
    canonical = [canonical_finish_reason(text) for text in given.to_list()]
    of_answer = calls["given_reason"].replace_strict(given, pl.Series(canonical, dtype=pl.String))
    own = pl.col("finish_reason")
    return calls.select(pl.when(own != "").then(own).otherwise(of_answer)).to_series()


def _has_ended(calls: pl.DataFrame, reasons: pl.Series, seen: _Seen) -> Mask:
    """Whether each answer is whole, and says something or asks for a tool."""
    reason = pl.lit(reasons)
    is_whole = ~reason.is_in(list(UNFINISHED)) & ~(pl.col("streams") & (reason == "")) & pl.col("tools").is_not_null()
    found = calls.select(is_whole=is_whole, asks=reason == TOOL_CALL)
    asks: Mask = seen.asked_counts > 0
    is_said = asks.copy()
    says: dict[str, bool] = {}
    for place in np.flatnonzero(~asks).tolist():
        text = seen.texts[place]
        if text not in says:
            says[text] = bool(text) and not is_call_as_text(text)
        is_said[place] = says[text]
    has_asked: Mask = asks | ~found["asks"].to_numpy()
    return found["is_whole"].to_numpy() & is_said & has_asked


def _is_offered(calls: pl.DataFrame, of_call: Numbers, named: Sequence[str]) -> Mask:
    """Whether each tool is one of those that its call was offered, if any were."""
    given = calls["tools"].unique()
    offered = {text: set(offered_tools(text)) for text in given.drop_nulls().to_list()}
    if len(given) == 1:
        names = next(iter(offered.values()), set[str]())
        if not names or names.issuperset(named):
            return np.ones(len(named), dtype=np.bool_)
    texts: list[str | None] = calls["tools"].gather(of_call).to_list()
    sets = [set[str]() if text is None else offered[text] for text in texts]
    return np.array([not names or name in names for names, name in zip(sets, named, strict=True)], dtype=np.bool_)


def _spans_of(trace: Numbers, asking: Numbers, ids: Sequence[str], tools: pl.DataFrame) -> tuple[Numbers, Mask]:
    """The row of the span of each tool call that was asked for, -1 without one; and of each call whether all fit.

    Every span with an id has to be one that was asked for, once; one without an id may be anybody's.
    """
    chosen = np.flatnonzero(np.isin(tools["trace"].to_numpy(), trace))
    of_tool, own = tools["trace"].to_numpy()[chosen], tools["tool_call_id"].gather(chosen)
    is_named, names = (own != "").to_numpy(), own.to_list()
    if np.array_equal(of_tool[is_named], asking):  # as a rule they stand as they were asked for
        listed = [name for name in names if name]
        if listed == ids and len(set(ids)) == len(ids):
            return chosen[is_named], np.ones(len(trace), dtype=np.bool_)
    places = {key: place for place, key in enumerate(zip(of_tool.tolist(), names, strict=True))}
    found = np.array([places.get(key, -1) for key in zip(asking.tolist(), ids, strict=True)], dtype=np.int64)
    size = 1 + max(trace.max(initial=0), of_tool.max(initial=0))
    named, unnamed, ran, has_run, has_not = (
        np.bincount(traces, minlength=size)
        for traces in (
            of_tool[is_named],
            of_tool[~is_named],
            of_tool[np.unique(found[found >= 0])],
            asking[found >= 0],
            asking[found < 0],
        )
    )
    fits = (named == ran) & (ran == has_run) & ((unnamed == 0) | (has_not == 0))
    return np.where(found >= 0, np.append(chosen, -1)[found], -1), fits[trace]


def _fails(contents: Sequence[str]) -> Mask:
    """Whether each answer of a tool tells of an error."""
    told = pl.DataFrame([pl.Series("tool_result", contents, dtype=pl.String)])
    fails: Mask = ~told.select(TELLS_OF_NO_ERROR).to_series().to_numpy()
    for place in np.flatnonzero(fails).tolist():
        fails[place] = error_in_text(contents[place]) is not None
    return fails


def _may_circle(trace: Numbers, of_call: Numbers, contents: Sequence[str], seen: _Seen) -> Mask:
    """Whether ``lanes`` would see a circle that ends with a call: the same was done and came back, again and again."""
    got = list(seen.texts)
    for place, content in zip(of_call.tolist(), contents, strict=True):
        got[place] = content
    for place in np.flatnonzero(seen.asked_counts > 1).tolist():
        first = int(np.searchsorted(of_call, place))
        got[place] = "\0".join(contents[first : first + seen.asked_counts[place]])
    numbers: dict[object, int] = {}
    codes = np.array([numbers.setdefault(key, len(numbers)) for key in zip(trace.tolist(), got, strict=True)])
    found = np.zeros(len(codes), dtype=np.bool_)
    if len(numbers) == len(codes):
        return found
    for place in np.flatnonzero(np.bincount(codes)[codes] > 1).tolist():
        first = int(np.searchsorted(of_call, place))
        asked = seen.asked[first : first + seen.asked_counts[place]]
        did = tuple((one.name, tuple(sorted(one.arguments.items()))) for one in asked)
        codes[place] = numbers.setdefault((trace[place], got[place], seen.texts[place], did), len(numbers))
    for rounds in ROUNDS:
        again = np.zeros(len(codes), dtype=np.int64)
        again[rounds:] = codes[rounds:] == codes[:-rounds]
        runs = np.cumsum(again)
        runs[2 * rounds :] -= runs[: -2 * rounds].copy()
        found |= runs >= 2 * rounds
    return found


def _told(calls: pl.DataFrame, seen: _Seen, begins: Mask, reasons: pl.Series, results: pl.Series) -> pl.DataFrame:
    """The columns of ``silent.silent_steps``."""
    starts, trace = np.flatnonzero(begins), np.cumsum(begins) - 1
    is_first, is_last = pl.Series(begins), pl.Series(np.append(begins[1:], True))
    before = pl.Series([opening.before for opening in seen.openings], dtype=pl.String).gather(trace)
    new = pl.col("new").str.strip_prefix("[").str.strip_suffix("]")
    further = pl.concat_str(pl.lit(","), pl.col("bare").shift(), pl.lit(","), new)
    added = calls.select(pl.when(is_first).then(pl.concat_str(pl.lit("["), before, new)).otherwise(further)).to_series()
    ends = np.cumsum(added.str.len_bytes().to_numpy().astype(np.int64))
    begin = np.append(0, ends)[starts]
    # Every state is the beginning of its trace's last one: a view of it, and one copy for the bracket.
    whole = binary(added.str.join("").item().encode(), np.append(begin, ends[-1]))
    states = (
        pl.DataFrame([whole.gather(trace).alias("whole"), pl.Series("size", ends - begin[trace])])
        .select(pl.concat_str(pl.col("whole").bin.slice(0, pl.col("size")).cast(pl.String), pl.lit("]")))
        .to_series()
    )
    capture, is_exact = pl.col("capture"), pl.col("is_exact")
    return calls.select(
        state=states,
        next_state=pl.when(is_last).then(pl.lit("")).otherwise(states.shift(-1)),
        is_last=is_last,
        first=pl.col("place").gather(pl.lit(pl.Series(starts[trace]))),
        action=pl.col("said").str.strip_prefix("[").str.strip_suffix("]"),
        tool_results=results,
        tool_call_count=pl.Series(seen.asked_counts).cast(pl.UInt32),
        finish_reason=reasons,
        is_orphan=pl.lit(value=False),
        continues=~is_first,
        before=pl.when(~is_first).then(capture.shift()),
        is_broken=(is_exact != is_exact.shift()).fill_null(value=False) & ~is_first,
    )
