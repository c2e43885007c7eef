"""Traces of conversations, one behind the other, in which calls go on where the call before ended: read all at once.

Invariant: a trace that gets through here is one that ``lanes`` would let through, with the same steps. What a call has
beyond the call before is found in columns, decoded for all calls together, and looked at once. A trace with anything
else in it (conversations that take turns or begin alike, a tool that is told by its name, an answer that is spelled
otherwise in the history) is left to ``lanes``.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, repeat
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from ..attributes import Mask
from ..attributes import Rows as Numbers
from ..attribution import offered_tools
from ..attribution.broken_output import is_call_as_text
from ..finish_reasons import TOOL_CALL, canonical_finish_reason
from ..ragged import pieces
from ..tool_results import error_in_text
from .chain_messages import Answers, News, Opening, read_answers, read_news
from .lanes import ROUNDS, UNFINISHED, Answer
from .pieces import Result, written_lines
from .screen import TELLS_OF_NO_ERROR
from .talk import Said


class Chains(NamedTuple):
    """What was read."""

    is_read: Mask
    """Whether each of the traces given was."""
    told: pl.DataFrame
    """Of the calls of those: see ``silent.silent_steps``."""
    said: list[list[Said]]
    """Of each of those traces: its conversations; their first calls are numbered among those given."""
    answers: list[list[Answer]]
    """What its tools answered."""
    texts: Sequence[str]
    """What its calls answered in words, stripped."""


class _Rows(NamedTuple):
    """Calls of traces that may be such conversations, and what was read of each."""

    calls: pl.DataFrame
    """With ``place`` among the calls given, the number of its ``chain``, ``bare`` (the answer as it comes back) and
    ``text`` (what the input has beyond it and the input before)."""
    answers: Answers
    news: News

    def only(self, is_fine: Mask) -> "_Rows":
        """Less the traces of which not every call is fine."""
        kept = _of_whole_traces(self.calls, is_fine)
        if kept.all():
            return self
        return _Rows(self.calls.filter(pl.Series(kept)), self.answers.only(kept), self.news.only(kept))


def is_next() -> pl.Expr:
    """Whether times, service and system prompt let a call go on where the one before it in the column ended."""
    ended = pl.col("Timestamp") + pl.col("Duration")
    is_later = (ended.shift() <= pl.col("Timestamp")) & (pl.col("Timestamp").shift() < pl.col("Timestamp"))
    alike = [pl.col(name) == pl.col(name).shift() for name in ("trace", "ServiceName", "system_instructions")]
    return pl.all_horizontal(is_later, *alike).fill_null(value=False)


def read_chains(calls: pl.DataFrame, tools: pl.DataFrame) -> Chains | None:
    """Read what is one conversation, or one behind the other; None where nothing is.

    Args:
        calls: Model calls by trace, start and id, each trace whole.
        tools: The tools' spans of the same traces (and others), in the same order.
    """
    rows = _read(_growing(calls))
    while not rows.calls.is_empty():
        found = _found(rows, tools)
        if isinstance(found, Chains):
            is_read = np.isin(calls["trace"].to_numpy()[_begins(calls, "trace")], rows.calls["trace"].to_numpy())
            return found._replace(is_read=is_read)
        rows = rows.only(found)
    return None


def _begins(calls: pl.DataFrame, what: str = "chain") -> Mask:
    """Whether each call is the first of its conversation, or trace."""
    number = calls[what].to_numpy()
    return np.concatenate([[True], number[1:] != number[:-1]])[: len(number)]


def _of_whole_traces(calls: pl.DataFrame, is_fine: Mask) -> Mask:
    """Which calls are of a trace of which every call is fine."""
    if is_fine.all():
        return is_fine
    begins = _begins(calls, "trace")
    found: Mask = np.logical_and.reduceat(is_fine, np.flatnonzero(begins))[np.cumsum(begins) - 1]
    return found


def _inner(column: str) -> pl.Expr:
    """Lists without their brackets: views, no copies."""
    return pl.col(column).str.slice(1).str.head(-1)


def _bytes(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.Binary)


def _growing(calls: pl.DataFrame) -> pl.DataFrame:
    """The traces in which every call's input begins with that of the call before, or has no answer in it yet."""
    text, answer = _bytes("input_messages"), _bytes("output_messages")
    is_list = [one.bin.starts_with(b"[{") & one.bin.ends_with(b"}]") for one in (text, answer)]
    given = pl.col("input_messages").str
    comes_again = given.starts_with(given.head(-1).shift())
    told = calls.select(
        is_list=pl.all_horizontal(is_list),
        goes_on=(is_next() & comes_again).fill_null(value=False),
    )
    begins = ~told["goes_on"].to_numpy()
    is_fine = told["is_list"].to_numpy().copy()
    new = np.flatnonzero(begins & ~_begins(calls, "trace"))
    is_fine[new] &= ~calls["input_messages"].gather(new).str.contains(_ANSWER, literal=True).to_numpy()
    kept = _of_whole_traces(calls, is_fine)
    chain = pl.Series("chain", np.cumsum(begins))
    return calls.with_columns(chain).with_row_index("place").filter(pl.Series(kept))


_ANSWER: Final = '"assistant"'


def _read(growing: pl.DataFrame) -> _Rows:
    """What the calls answered, and what is new in their inputs."""
    answers = read_answers(growing["output_messages"])
    kept = _of_whole_traces(growing, answers.is_fine)
    calls, answers = (growing, answers) if kept.all() else (growing.filter(pl.Series(kept)), answers.only(kept))
    calls = calls.with_columns(answers.reasons, answers.json.alias("said"))
    calls = calls.with_columns(_bare(), _new(calls).alias("text"))
    is_fine = calls.select(pl.all_horizontal(pl.col("bare", "text").is_not_null())).to_series().to_numpy()
    kept = _of_whole_traces(calls, is_fine)
    calls, answers = (calls, answers) if kept.all() else (calls.filter(pl.Series(kept)), answers.only(kept))
    news = read_news(calls["text"], calls["chain"].to_numpy(), _begins(calls), calls["system_instructions"])
    return _Rows(calls, answers, news).only(news.is_fine)


def _bare() -> pl.Expr:
    """The answer without its finish reason; null where that is not its last field."""
    reason, said = pl.col("given_reason"), pl.col("said").str
    last = pl.concat_str(pl.lit(',"finish_reason":"'), reason, pl.lit('"}]'))
    end = pl.when(reason == "").then(pl.lit("}]")).otherwise(last)
    return (
        pl.when(said.ends_with(end)).then(pl.concat_str(said.strip_suffix(end).str.slice(1), pl.lit("}"))).alias("bare")
    )


def _new(calls: pl.DataFrame) -> pl.Series:
    """The list of messages that an input has beyond the input and the answer before; null where those come otherwise.

    The answer has to come as it was spelled, less its finish reason.
    """
    answer, reason, tail, again = (pl.col(name) for name in ("output_messages", "given_reason", "tail", "again"))
    ends = [
        pl.concat_str(pl.lit(before), reason, pl.lit('"}]')).alias(name)
        for name, before in (("wide", ', "finish_reason": "'), ("narrow", ',"finish_reason":"'))
    ]
    end = (
        pl.when(reason == "")
        .then(pl.lit("}]"))
        .when(answer.str.ends_with(pl.col("wide")))
        .then("wide")
        .when(answer.str.ends_with(pl.col("narrow")))
        .then("narrow")
    )
    comma = pl.when(tail.str.starts_with(", ")).then(pl.lit(", ")).otherwise(pl.lit(","))
    kept = _bytes("input_messages").bin.size().shift() - 1
    # One column after another: as one expression each would be found again wherever it is used.
    steps = (
        calls.select(answer, reason, *ends, tail=_bytes("input_messages").bin.slice(kept).cast(pl.String))
        .select(tail, spelled=answer.str.strip_suffix(end).str.slice(1).shift(), comma=comma)
        .select(tail, again=pl.concat_str("comma", "spelled", pl.lit("}"), "comma"))
    )
    return steps.select(
        pl.when(pl.Series(_begins(calls)))
        .then(calls["input_messages"])
        .when(tail.str.starts_with(again))
        .then(pl.concat_str(pl.lit("["), tail.str.strip_prefix(again)))
    ).to_series()


def _found(rows: _Rows, tools: pl.DataFrame) -> Chains | Mask:
    """What there is to say of the calls; or which are fine, where not all are."""
    calls, (asked, ids, named, counts, texts, *_), news = rows
    begins = _begins(calls)
    is_fine: Mask = counts == np.append(np.where(begins, 0, news.counts)[1:], 0)
    if not is_fine.all():
        return is_fine
    of_call, trace, chain = np.repeat(np.arange(calls.height), counts), *(calls[one].to_numpy() for one in _NUMBERS)
    starts = np.flatnonzero(begins)
    openings = [news.openings[number] for number in chain[starts].tolist()]
    places, has_all = _spans_of(trace, trace[of_call], ids, tools)
    reasons = _reasons(calls)
    is_fine = has_all & _has_ended(calls, reasons, rows.answers) & ~_may_circle(chain, of_call, rows)
    is_fine[starts[_like_another(trace[starts], openings)]] = False
    if ids != news.ids or "" in ids:
        answers_it = [bool(one) and one == other for one, other in zip(ids, news.ids, strict=True)]
        is_fine[of_call[~np.array(answers_it, dtype=np.bool_)]] = False
    is_fine[of_call[~_is_offered(calls, of_call, named) | _fails(news.contents)]] = False
    if not is_fine.all():
        return is_fine
    ran = pl.lit(pl.Series(places, dtype=pl.Int64).replace(-1, None))
    spans = tools.select(pl.col("Duration").gather(ran).fill_null(0), pl.col("SpanId").gather(ran).fill_null(""))
    durations, span_ids = spans["Duration"].to_list(), spans["SpanId"].to_list()
    results = list(map(Result, ids, named, repeat("ok"), repeat(""), news.contents, durations, span_ids))
    ends: list[int] = np.cumsum(counts).tolist()
    of_calls = [results[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    lasts: list[int] = np.append(starts[1:], len(begins)).tolist()
    said = [
        Said(opening.start, opening.question, texts[last - 1], place)
        for opening, last, place in zip(openings, lasts, calls["place"].gather(starts).to_list(), strict=True)
    ]
    of_traces = np.flatnonzero(_begins(calls, "trace"))
    bounds = [*of_traces.tolist(), len(begins)]
    chains: list[int] = np.append(np.searchsorted(starts, of_traces), len(starts)).tolist()
    answers = list(zip(asked, news.contents, strict=True))
    return Chains(
        is_read=begins,
        told=_told(rows, openings, reasons, written_lines(of_calls)),
        said=[said[start:end] for start, end in pairwise(chains)],
        answers=[answers[ends[start - 1] if start else 0 : ends[last - 1]] for start, last in pairwise(bounds)],
        texts=texts,
    )


_NUMBERS: Final = ("trace", "chain")


def _like_another(traces: Numbers, openings: Sequence[Opening]) -> Mask:
    """Which conversations begin like another one of their trace."""
    if len(np.unique(traces)) == len(traces):
        return np.zeros(len(traces), dtype=np.bool_)
    keys = [(trace, opening.start) for trace, opening in zip(traces.tolist(), openings, strict=True)]
    counts = Counter(keys)
    return np.array([counts[key] > 1 for key in keys], dtype=np.bool_)


def _reasons(calls: pl.DataFrame) -> pl.Series:
    """The canonical finish reason of each call: the call's own, else the answer's."""
    given = calls["given_reason"].unique()
    canonical = [canonical_finish_reason(text) for text in given.to_list()]
    of_answer = calls["given_reason"].replace_strict(given, pl.Series(canonical, dtype=pl.String))
    own = pl.col("finish_reason")
    return calls.select(pl.when(own != "").then(own).otherwise(of_answer)).to_series()


def _has_ended(calls: pl.DataFrame, reasons: pl.Series, answers: Answers) -> Mask:
    """Whether each answer is whole, and says something or asks for a tool."""
    reason = pl.lit(reasons)
    is_whole = ~reason.is_in(list(UNFINISHED)) & ~(pl.col("streams") & (reason == "")) & pl.col("tools").is_not_null()
    found = calls.select(is_whole=is_whole, asks=reason == TOOL_CALL)
    asks: Mask = answers.counts > 0
    is_said = asks.copy()
    says: dict[str, bool] = {}
    for place in np.flatnonzero(~asks).tolist():
        text = answers.texts[place]
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


def _may_circle(chain: Numbers, of_call: Numbers, rows: _Rows) -> Mask:
    """Whether ``lanes`` would see a circle that ends with a call: the same was done and came back, again and again."""
    (asked, _, _, counts, texts, *_), contents = rows.answers, rows.news.contents
    got = list(texts)
    for place, content in zip(of_call.tolist(), contents, strict=True):
        got[place] = content
    for place in np.flatnonzero(counts > 1).tolist():
        first = int(np.searchsorted(of_call, place))
        got[place] = "\0".join(contents[first : first + counts[place]])
    numbers: dict[object, int] = {}
    codes = np.array([numbers.setdefault(key, len(numbers)) for key in zip(chain.tolist(), got, strict=True)])
    found = np.zeros(len(codes), dtype=np.bool_)
    if len(numbers) == len(codes):
        return found
    for place in np.flatnonzero(np.bincount(codes)[codes] > 1).tolist():
        first = int(np.searchsorted(of_call, place))
        own = asked[first : first + counts[place]]
        did = tuple((one.name, tuple(sorted(one.arguments.items()))) for one in own)
        codes[place] = numbers.setdefault((chain[place], got[place], texts[place], did), len(numbers))
    for rounds in ROUNDS:
        again = np.zeros(len(codes), dtype=np.int64)
        again[rounds:] = codes[rounds:] == codes[:-rounds]
        runs = np.cumsum(again)
        runs[2 * rounds :] -= runs[: -2 * rounds].copy()
        found |= runs >= 2 * rounds
    return found


def _told(rows: _Rows, openings: Sequence[Opening], reasons: pl.Series, results: pl.Series) -> pl.DataFrame:
    """The columns of ``silent.silent_steps``."""
    begins = _begins(rows.calls)
    calls = rows.calls.with_columns(rows.news.json.alias("new"))
    starts, chain = np.flatnonzero(begins), np.cumsum(begins) - 1
    is_first, is_last = pl.Series(begins), pl.Series(np.append(begins[1:], True))
    before = pl.Series([opening.before for opening in openings], dtype=pl.String).gather(chain)
    new = _inner("new")
    further = pl.concat_str(pl.lit(","), pl.col("bare").shift(), pl.lit(","), new)
    added = calls.select(pl.when(is_first).then(pl.concat_str(pl.lit("["), before, new)).otherwise(further)).to_series()
    ends = np.cumsum(added.str.len_bytes().to_numpy().astype(np.int64))
    begin = np.append(0, ends)[starts]
    # Every state is the beginning of its conversation's last one, a view of it: only the bracket makes a copy.
    states = (
        pieces(added.str.join("").cast(pl.Binary).item(), begin[chain], ends - begin[chain])
        .alias("state")
        .to_frame()
        .select(pl.concat_str("state", pl.lit("]")))
        .to_series()
    )
    # Gathered, because a condition would copy the texts.
    places = np.where(np.append(begins[1:], True), len(begins), np.arange(1, len(begins) + 1))
    following = pl.concat([states, pl.Series([""])], rechunk=True).gather(places)
    capture, is_exact = pl.col("capture"), pl.col("is_exact")
    return calls.select(
        state=states,
        next_state=following,
        is_last=is_last,
        first=pl.col("place").gather(pl.lit(pl.Series(starts[chain]))),
        action=_inner("said"),
        tool_results=results,
        tool_call_count=pl.Series(rows.answers.counts).cast(pl.UInt32),
        finish_reason=reasons,
        is_orphan=pl.lit(value=False),
        continues=~is_first,
        before=pl.when(~is_first).then(capture.shift()),
        is_broken=(is_exact != is_exact.shift()).fill_null(value=False) & ~is_first,
    )
