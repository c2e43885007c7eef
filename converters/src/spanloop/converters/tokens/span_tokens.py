"""Token ids and log-probabilities that spans carry in their own attributes.

Invariant: a model call with such attributes has its ids, or a problem that names the span and the attribute; a capture
of the gateway goes before them. Lists of numbers never pass through Python: only responses whole (``choices``,
``output.value``) and log-probabilities with their tokens are decoded one by one.

vLLM, LiteLLM and Agent Lightning write them. Known by the end of the key, whatever stands before it:
``prompt_token_ids`` (``input_…``), ``response_token_ids`` (``completion_…``, ``output_…``; also one list a choice),
``logprobs`` (numbers, OpenAI's objects, ``logprobs.content``), and ``choices`` or ``output.value`` with ``token_ids``
in them. Here the first choice is read; ``response_tokens`` reads the others where there are any.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from msgspec.structs import replace

from spanloop.converters.enums import UntrainableReason
from spanloop.messages.json_values import Fields, as_fields

from .. import frames
from ..dialects.rows import decoded
from ..reading.attributes import Attributes, Mask
from ..spans import Problem, Span, SpanKind
from .captures import IN_SPAN, Capture, Generation, Generations, checked, read_generations
from .response_tokens import choice_token_ids, further_choices, logprobs_in, response_choices, token_ids
from .token_texts import turns

SpanKey = tuple[str, str]

_MARK: Final = "token_ids"
_RESPONSE: Final = "output.value"
_ROLES: Final = {
    "prompt": r"(?:^|[._])(?:prompt|input|request)[._]token_ids$",
    "response": r"(?:^|[._])(?:response|completion|output|generated)[._]token_ids(?:\.0)?$"
    r"|(?:^|\.)choices\.0\.(?:\w+\.)?token_ids$",
    "logprobs": r"(?:^|[._])logprobs(?:\.content|\.token_logprobs)?(?:\.0)?$",
    "whole": r"(?:^|\.)choices$|^output\.value$",
}
"""Role → the keys whose values play it; of several keys of one role the first in the alphabet counts."""

_LIST_LIKE: Final = r"^\s*[\[{]"
"""Beginning of log-probabilities: a request's ``logprobs`` is a number or a truth value."""

_NUMBERS: Final = r"^\s*\[[\d\s,\[\]]*\]\s*$"
_FLOATS: Final = r"^\s*\[[\d\s,.eE+\-\[\]]*\]\s*$"
_KEY: Final = ["TraceId", "SpanId"]


class SpanTokens(NamedTuple):
    """Token ids found in spans; ``trace_id`` and ``parent_span_id`` of a capture are those of the span itself."""

    captured: Generations
    """By trace, start and span, their tokens in the same order; behind them all choices but the first."""
    problems: dict[SpanKey, Problem]

    def beside(self, tokens: pl.DataFrame) -> pl.DataFrame:
        """``tokens`` of other captures, and behind them these."""
        span_tokens = self.captured.tokens
        if span_tokens.is_empty() or tokens.is_empty():
            return tokens if span_tokens.is_empty() else span_tokens
        return pl.concat([tokens, span_tokens])


def tokens_in_spans(spans: pl.DataFrame, attributes: Attributes | None = None) -> SpanTokens:
    """The token ids that ``spans`` carry; of a span that was delivered more than once, those of the first delivery.

    Args:
        spans: Rows of ``otel_traces``.
        attributes: Of ``spans``, where they were taken apart before.
    """
    columns_read = (*_KEY, "Timestamp", "IngestedAt", "SpanAttributes")
    known = frames.conform(spans, pl.Schema({name: frames.SPANS[name] for name in columns_read}))
    attributes = attributes or Attributes(known["SpanAttributes"])
    marked = _marked(attributes)
    if not marked.any():
        return SpanTokens(Generations(_NO_ROWS, _NO_TOKENS), {})
    rows = _in_order(known.drop("SpanAttributes").with_row_index("_row").filter(pl.Series(marked, dtype=pl.Boolean)))
    by_role = _values_by_role(rows["_row"], attributes)
    decoded_rows = rows.hstack(_decoded_rows(_numbers(by_role)).drop("_row"))
    problems = {
        (trace_id, span_id): Problem(UntrainableReason.TOKEN_MISMATCH, f"span {span_id}, attribute {problem}")
        for trace_id, span_id, problem in decoded_rows.filter(pl.col("problem").is_not_null())
        .select(*_KEY, "problem")
        .iter_rows()
    }
    sound = decoded_rows.filter(pl.col("problem").is_null()) if problems else decoded_rows
    sound = _with_choices(
        sound.with_columns(choice_index=pl.lit(0, dtype=pl.UInt16)), further_choices(by_role, attributes)
    )
    tokens = sound.select(
        pl.col("prompt").alias("prompt_token_ids"), pl.col("response").alias("response_token_ids"), "logprobs"
    )
    if any(tokens[name].null_count() for name in tokens.columns):
        tokens = tokens.with_columns(pl.all().fill_null([]))
    columns = {
        "generation_id": pl.concat_str(*_KEY, "choice_index", separator="/"),
        "trace_id": pl.col("TraceId"),
        "parent_span_id": pl.col("SpanId"),
        "choice_index": pl.col("choice_index"),
        "row": pl.int_range(pl.len()),
        **{name: pl.lit(tokens[name].list.len()) for name in tokens.columns},
        "is_complete": pl.lit(value=True),
        "sampling": pl.lit(pl.Series([[]], dtype=frames.STRING_ITEMS)).first(),
        "ingested_at": pl.col("IngestedAt").cast(pl.Int64),
    }
    schema = _NO_ROWS.schema
    return SpanTokens(
        Generations(
            sound.select(
                columns.get(name, pl.lit("" if dtype == pl.String else 0)).cast(dtype).alias(name)
                for name, dtype in schema.items()
            ),
            tokens,
        ),
        problems,
    )


_NO_ROWS, _NO_TOKENS = read_generations(frames.empty(frames.GENERATIONS))


def _with_choices(first: pl.DataFrame, further: pl.DataFrame) -> pl.DataFrame:
    """``first``, and behind it the other choices of its rows."""
    if further.is_empty():
        return first
    others = first.drop("response", "logprobs", "choice_index").join(further, on="_row", maintain_order="left")
    return pl.concat([first, others.select(first.columns)])


def _marked(attributes: Attributes) -> Mask:
    """Which rows have token ids."""
    marked = attributes.rows_with(attributes.matching(lambda key: _MARK in key))
    whole = attributes.places(_RESPONSE)
    return marked | attributes.rows_with(whole[[_MARK in text for text in attributes.texts_at(whole)]])


def _in_order(marked: pl.DataFrame) -> pl.DataFrame:
    """The first delivery of each span, by trace, start and span."""
    if marked.select(pl.struct(_KEY).is_duplicated().any()).item():
        marked = marked.sort("IngestedAt", "Timestamp", *_KEY).unique(_KEY, keep="first", maintain_order=True)
    return marked.sort("TraceId", "Timestamp", "SpanId")


def _values_by_role(rows: pl.Series, attributes: Attributes) -> pl.DataFrame:
    """For each role the key and the value that play it, in columns ``role`` and ``role:key``; null where none does."""
    columns = [rows]
    keys = pl.Series(attributes.keys, dtype=pl.String)
    for role, pattern in _ROLES.items():
        named = keys.filter(keys.str.contains(pattern)).to_list()
        if not named:
            columns += [
                pl.Series(name, [None], dtype=pl.String).new_from_index(0, rows.len()) for name in (role, f"{role}:key")
            ]
            continue
        allowed = _LIST_LIKE if role == "logprobs" else r"\S"
        places = np.full(attributes.height, -1, dtype=np.int64)
        for key in sorted(named, reverse=True):
            key_places = attributes.places(key)
            values = attributes.values.gather(pl.Series(key_places, dtype=pl.UInt32))
            key_places = key_places[values.str.contains(allowed).fill_null(value=False).to_numpy()]
            places[attributes.rows[key_places]] = key_places
        playing = pl.Series(places[rows.to_numpy()]).replace(-1, None).cast(pl.UInt32)
        columns.append(attributes.values.gather(playing).alias(role))
        columns.append(keys.gather(pl.Series(attributes.codes).gather(playing)).alias(f"{role}:key"))
    return pl.DataFrame(columns)


def _numbers(by_role: pl.DataFrame) -> pl.DataFrame:
    """Lists of numbers out of text, without Python; ``problem`` where there is a list that holds something else."""
    ids = turns(by_role["prompt"], by_role["response"])
    lists = by_role.with_columns(
        *(
            _ids_in(by_role[role], role_ids).alias(f"{role}:list")
            for role, role_ids in zip(("prompt", "response"), ids, strict=True)
        ),
        pl.lit(None, dtype=pl.List(pl.Float32)).alias("logprobs:list"),
        pl.lit(None, dtype=pl.String).alias("logprobs:rest"),
    )
    if lists["logprobs"].null_count() < lists.height:
        is_flat = pl.col("logprobs").str.contains(_FLOATS).fill_null(value=False)
        lists = lists.with_columns(
            pl.when(is_flat).then(_list("logprobs", _FLOATS, pl.List(pl.Float32))).alias("logprobs:list"),
            pl.when(~is_flat).then("logprobs").alias("logprobs:rest"),
        )
    infinite = pl.col("logprobs:list").list.eval(~pl.element().is_finite().fill_null(value=False)).list.any()
    broken = {
        "prompt": ("token ids", pl.col("prompt").is_not_null() & pl.col("prompt:list").is_null()),
        "response": ("token ids", pl.col("response").is_not_null() & pl.col("response:list").is_null()),
        "logprobs": ("finite logprobs", infinite.fill_null(value=False)),
    }
    is_broken_of = lists.select(is_broken.alias(role) for role, (_, is_broken) in broken.items())
    problems = [
        pl.when(is_broken_of[role]).then(
            pl.format(f"{{}}: expected {what}, got {{}}", f"{role}:key", pl.col(role).str.slice(0, 80))
        )
        for role, (what, _) in broken.items()
        if is_broken_of[role].any()
    ]
    return lists.with_columns(pl.coalesce(*problems, pl.lit(None, dtype=pl.String)).alias("problem"))


def _ids_in(texts: pl.Series, lists: pl.Series) -> pl.Series:
    """The token ids in each text, of which ``lists`` has most; null without one, and where it holds something else."""
    rest = texts.is_not_null() & lists.is_null()
    if not rest.any():
        return lists
    read = texts.filter(rest).alias("text").to_frame().select(_list("text", _NUMBERS, pl.List(pl.UInt32)).alias("ids"))
    has_holes = pl.col("ids").list.eval(pl.element().is_null()).list.any()
    read_ids = read.select(pl.when(~has_holes).then("ids")).to_series()
    places = pl.select(pl.when(rest).then(lists.len() + rest.cum_sum() - 1).otherwise(pl.int_range(lists.len())))
    return pl.concat([lists, read_ids]).gather(places.to_series())


def _list(column: str, pattern: str, dtype: pl.List) -> pl.Expr:
    """The first innermost list of numbers in the text of ``column``; null for other text."""
    inner = pl.col(column).str.splitn("]", 2).struct.field("field_0").str.replace_all(r"[\[\s]", "")
    split = pl.when(inner == "").then(pl.lit([], dtype=pl.List(pl.String))).otherwise(inner.str.split(","))
    return pl.when(pl.col(column).str.contains(pattern)).then(split.cast(dtype, strict=False))


def _decoded_rows(by_role: pl.DataFrame) -> pl.DataFrame:
    """``prompt``, ``response``, ``logprobs`` and ``problem`` of each row, with what has to be decoded one by one."""
    is_missing = pl.col("response:list").is_null() | pl.col("prompt:list").is_null() | pl.col("logprobs:list").is_null()
    has_more = pl.col("logprobs:rest").is_not_null() | pl.col("whole").is_not_null()
    left = by_role.filter(pl.col("problem").is_null() & is_missing & has_more).select(
        "_row", "logprobs:rest", "logprobs:key", "whole", "whole:key"
    )
    names = ("prompt", "response", "logprobs")
    if left.is_empty():
        return by_role.select("_row", *(pl.col(f"{name}:list").alias(name) for name in names), "problem")
    read = [_from_response(*row) for row in left.iter_rows()]
    schema = {
        "_row": by_role.schema["_row"],
        "prompt:more": pl.List(pl.UInt32),
        "response:more": pl.List(pl.UInt32),
        "logprobs:more": pl.List(pl.Float32),
        "problem:more": pl.String(),
    }
    more = pl.DataFrame(read, schema=schema, orient="row")
    joined = by_role.join(more, on="_row", how="left", maintain_order="left")
    return joined.select(
        "_row",
        *(pl.coalesce(f"{name}:list", f"{name}:more").alias(name) for name in names),
        pl.coalesce("problem", "problem:more").alias("problem"),
    )


_Read = tuple[int, list[int] | None, list[int] | None, list[float] | None, str | None]


def _from_response(row: int, logprobs: str | None, logprobs_key: str, whole: str | None, whole_key: str) -> _Read:
    """Return the token ids in a whole response, and log-probabilities that are no plain numbers."""
    response = decoded(whole) if whole and (_MARK in whole or "logprob" in whole) else None
    fields = as_fields(response)
    choice = next(iter(response_choices(response)), Fields())
    try:
        prompt = token_ids(fields.get("prompt_token_ids"))
        answered = token_ids(choice_token_ids(choice) or fields.get("response_token_ids"))
    except ValueError as error:
        return row, None, None, None, f"{whole_key}: expected token ids, got {error}"
    given: object = decoded(logprobs) if logprobs else choice.get("logprobs")
    values = logprobs_in(given)
    if values is not None and not all(isfinite(value) for value in values):
        return row, None, None, None, f"{logprobs_key or whole_key}: expected finite logprobs, got {values[:5]}"
    return row, prompt, answered, values, None


def join_carried(
    spans: Iterable[Span],
    duplicates: Mapping[SpanKey, SpanKey],
    captured: Generations,
    captures: Mapping[SpanKey, Capture],
    carried: SpanTokens,
) -> tuple[dict[SpanKey, Capture], pl.DataFrame]:
    """``captures`` with what model calls carry themselves where the gateway captured nothing, and all their tokens.

    Args:
        spans: The spans that count.
        duplicates: Span that repeats a call → the span that counts; what only it carries is taken over.
        captured: What the gateway captured.
        captures: Model call → the gateway's capture.
        carried: See ``tokens_in_spans``.
    """
    tokens = carried.beside(captured.tokens)
    rows = carried.captured.rows
    if rows.is_empty() and not carried.problems:
        return dict(captures), tokens
    held: dict[SpanKey, SpanKey] = {kept: gone for gone, kept in sorted(duplicates.items(), reverse=True)}
    joined = dict(captures)
    of_rest = rows.filter(pl.col("trace_id").is_in(list({span.trace_id for span in spans})))
    offset = captured.tokens.height
    generations: dict[SpanKey, list[Generation]] = defaultdict(list)
    for one in carried.captured._replace(rows=of_rest).generations:
        generations[one.trace_id, one.parent_span_id].append(replace(one, row=one.row + offset))
    for span in spans:
        if span.kind is not SpanKind.LLM or span.key in joined:
            continue
        for key in (span.key, held.get(span.key)):
            if key in generations:
                joined[span.key] = checked(span, generations[key], IN_SPAN)
                break
            if key in carried.problems:
                joined[span.key] = Capture(None, IN_SPAN, carried.problems[key], 0)
                break
    return joined, tokens
