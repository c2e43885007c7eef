"""Token ids and log-probabilities that spans carry in their own attributes.

Invariant: a model call with such attributes has its ids, or a problem that names the span and the attribute; a capture
of the gateway goes before them. Lists of numbers never pass through Python: only responses whole (``choices``,
``output.value``) and log-probabilities with their tokens are decoded one by one.

vLLM, LiteLLM and Agent Lightning write them. Known by the end of the key, whatever stands before it:
``prompt_token_ids`` (``input_…``), ``response_token_ids`` (``completion_…``, ``output_…``; also one list a choice, of
which the first counts), ``logprobs`` (numbers, OpenAI's objects, ``logprobs.content``), and ``choices`` or
``output.value`` with ``token_ids`` in them.
"""

from collections.abc import Iterable, Mapping
from math import isfinite, nan
from typing import Final, NamedTuple, cast

import polars as pl

from spanloop.semconv.enums import UntrainableReason

from . import frames
from .captures import IN_SPAN, Capture, Generation, Generations, checked, read_generations
from .chat_forms import Fields, as_fields, as_list
from .dialects.rows import decoded
from .spans import Problem, Span, SpanKind

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
"""What log-probabilities look like: a request's ``logprobs`` is a number or a truth value."""

_NUMBERS: Final = r"^\s*\[[\d\s,\[\]]*\]\s*$"
_FLOATS: Final = r"^\s*\[[\d\s,.eE+\-\[\]]*\]\s*$"
_KEY: Final = ["TraceId", "SpanId"]
_LOGPROB: Final = ("logprob", "log_prob", "token_logprob")


class Carried(NamedTuple):
    """What spans carry, each under its span's key."""

    generations: dict[SpanKey, Generation]
    tokens: pl.DataFrame
    """As ``Generations.tokens``; ``Generation.row`` counts in it."""
    problems: dict[SpanKey, Problem]


def tokens_in_spans(spans: pl.DataFrame) -> Carried:
    """The token ids that ``spans`` carry; of a span that was delivered more than once, those of the first delivery.

    Args:
        spans: Rows of ``otel_traces``.
    """
    wanted = (*_KEY, "Timestamp", "IngestedAt", "SpanAttributes")
    known = frames.conform(spans, pl.Schema({name: frames.SPANS[name] for name in wanted}))
    marked = known.filter(pl.col("SpanAttributes").list.eval(_is_marked).list.any().fill_null(value=False))
    if marked.is_empty():
        return Carried({}, _NO_TOKENS, {})
    rows = (
        marked.sort("IngestedAt", "Timestamp", *_KEY)
        .unique(_KEY, keep="first", maintain_order=True)
        .with_row_index("_row")
    )
    found = _decoded_rows(_numbers(rows.select("_row").join(_told(rows), on="_row", how="left")))
    problems = {
        (trace_id, span_id): Problem(UntrainableReason.TOKEN_MISMATCH, f"span {span_id}, attribute {problem}")
        for trace_id, span_id, problem in rows.join(found, on="_row")
        .filter(pl.col("problem").is_not_null())
        .select(*_KEY, "problem")
        .iter_rows()
    }
    sound = rows.join(found, on="_row").filter(pl.col("problem").is_null())
    read = read_generations(
        sound.select(
            pl.concat_str(*_KEY, separator="/").alias("generation_id"),
            pl.lit(0).alias("choice_index"),
            pl.col("TraceId").alias("trace_id"),
            pl.col("SpanId").alias("parent_span_id"),
            pl.col("prompt").alias("prompt_token_ids"),
            pl.col("response").alias("response_token_ids"),
            "logprobs",
            pl.lit(value=True).alias("is_complete"),
            pl.col("IngestedAt").alias("ingested_at"),
        )
    )
    return Carried({(one.trace_id, one.parent_span_id): one for one in read.found}, read.tokens, problems)


_NO_TOKENS: Final = frames.empty(frames.GENERATIONS).select("prompt_token_ids", "response_token_ids", "logprobs")
_field = pl.element().struct.field
_is_marked: Final = _field("key").str.contains(_MARK, literal=True) | (
    (_field("key") == _RESPONSE) & _field("value").str.contains(_MARK, literal=True)
)


def _told(rows: pl.DataFrame) -> pl.DataFrame:
    """For each role the key and the value that play it, in columns ``role`` and ``role:key``; null where none does."""
    items = rows.select("_row", "SpanAttributes").explode("SpanAttributes").unnest("SpanAttributes")
    told = rows.select("_row")
    for role, pattern in _ROLES.items():
        allowed = _LIST_LIKE if role == "logprobs" else r"\S"
        playing = (
            items.filter(pl.col("key").str.contains(pattern) & pl.col("value").str.contains(allowed))
            .sort("_row", "key")
            .unique("_row", keep="first", maintain_order=True)
            .select("_row", pl.col("key").alias(f"{role}:key"), pl.col("value").alias(role))
        )
        told = told.join(playing, on="_row", how="left", maintain_order="left")
    return told


def _numbers(told: pl.DataFrame) -> pl.DataFrame:
    """Lists of numbers out of text, without Python; ``problem`` where there is a list that holds something else."""
    ids, floats = pl.List(pl.UInt32), pl.List(pl.Float32)
    is_flat = pl.col("logprobs").str.contains(_FLOATS).fill_null(value=False)
    lists = told.with_columns(
        *(_list(role, _NUMBERS, ids).alias(f"{role}:list") for role in ("prompt", "response")),
        pl.when(is_flat).then(_list("logprobs", _FLOATS, floats)).alias("logprobs:list"),
        pl.when(~is_flat).then("logprobs").alias("logprobs:rest"),
    )
    broken = [
        pl.when(pl.col(role).is_not_null() & (pl.col(f"{role}:list").is_null() | _holds_null(f"{role}:list"))).then(
            pl.format("{}: expected token ids, got {}", f"{role}:key", pl.col(role).str.slice(0, 80))
        )
        for role in ("prompt", "response")
    ]
    infinite = pl.col("logprobs:list").list.eval(~pl.element().is_finite().fill_null(value=False)).list.any()
    broken.append(
        pl.when(infinite).then(
            pl.format("{}: expected finite logprobs, got {}", "logprobs:key", pl.col("logprobs").str.slice(0, 80))
        )
    )
    return lists.with_columns(pl.coalesce(*broken).alias("problem"))


def _list(column: str, pattern: str, dtype: pl.List) -> pl.Expr:
    """The first innermost list of numbers in the text of ``column``; null for other text."""
    inner = pl.col(column).str.splitn("]", 2).struct.field("field_0").str.replace_all(r"[\[\s]", "")
    split = pl.when(inner == "").then(pl.lit([], dtype=pl.List(pl.String))).otherwise(inner.str.split(","))
    return pl.when(pl.col(column).str.contains(pattern)).then(split.cast(dtype, strict=False))


def _holds_null(column: str) -> pl.Expr:
    return pl.col(column).list.eval(pl.element().is_null()).list.any()


def _decoded_rows(told: pl.DataFrame) -> pl.DataFrame:
    """``prompt``, ``response``, ``logprobs`` and ``problem`` of each row, with what has to be decoded one by one."""
    is_missing = pl.col("response:list").is_null() | pl.col("prompt:list").is_null() | pl.col("logprobs:list").is_null()
    left = told.filter(pl.col("problem").is_null() & is_missing).select(
        "_row", "logprobs:rest", "logprobs:key", "whole", "whole:key"
    )
    read = [_from_response(*row) for row in left.iter_rows()]
    schema = {
        "_row": told.schema["_row"],
        "prompt:more": pl.List(pl.UInt32),
        "response:more": pl.List(pl.UInt32),
        "logprobs:more": pl.List(pl.Float32),
        "problem:more": pl.String(),
    }
    more = pl.DataFrame(read, schema=schema, orient="row")
    joined = told.join(more, on="_row", how="left", maintain_order="left")
    return joined.select(
        "_row",
        *(pl.coalesce(f"{name}:list", f"{name}:more").alias(name) for name in ("prompt", "response", "logprobs")),
        pl.coalesce("problem", "problem:more").alias("problem"),
    )


_Read = tuple[int, list[int] | None, list[int] | None, list[float] | None, str | None]


def _from_response(row: int, logprobs: str | None, logprobs_key: str, whole: str | None, whole_key: str) -> _Read:
    """What stands in a response whole, and log-probabilities that are no plain numbers."""
    response = decoded(whole) if whole and (_MARK in whole or "logprob" in whole) else None
    told = as_fields(response)
    choices = as_list(told.get("choices")) if told else as_list(response)
    choice = as_fields(choices[0]) if choices else {}
    special = as_fields(choice.get("provider_specific_fields"))
    try:
        prompt = _ids(told.get("prompt_token_ids"))
        answered = _ids(choice.get("token_ids", special.get("token_ids", told.get("response_token_ids"))))
    except ValueError as error:
        return row, None, None, None, f"{whole_key}: expected token ids, got {error}"
    given: object = decoded(logprobs) if logprobs else choice.get("logprobs")
    found = _logprobs(given)
    if found is not None and not all(isfinite(value) for value in found):
        return row, None, None, None, f"{logprobs_key or whole_key}: expected finite logprobs, got {found[:5]}"
    return row, prompt, answered, found, None


def _first_list(value: object) -> list[object]:
    """The list, or of a list of lists (one a choice) the first."""
    listed = as_list(value)
    head = listed[0] if listed else None
    return cast("list[object]", head) if isinstance(head, list) else listed


def _ids(value: object) -> list[int] | None:
    """Token ids out of a list, or out of the first of several lists.

    Raises:
        ValueError: When something in it is no token id.
    """
    listed = _first_list(value)
    for item in listed:
        if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < 2**32:
            raise ValueError(repr(item)[:80])
    return cast("list[int]", listed) or None


def _logprobs(value: object) -> list[float] | None:
    """Natural log-probabilities out of numbers, OpenAI's objects or an object that holds either; None without any."""
    for key in ("content", "token_logprobs", "logprobs"):
        value = as_fields(value).get(key, value)
    listed = _first_list(value)
    return [_logprob(item) for item in listed] or None


def _logprob(item: object) -> float:
    fields: Fields = as_fields(item)
    told = next((fields[key] for key in _LOGPROB if key in fields), None) if fields else item
    return float(told) if isinstance(told, (int, float)) and not isinstance(told, bool) else nan


def join_carried(
    spans: Iterable[Span],
    duplicates: Mapping[SpanKey, SpanKey],
    captured: Generations,
    captures: Mapping[SpanKey, Capture],
    carried: Carried,
) -> tuple[dict[SpanKey, Capture], pl.DataFrame]:
    """``captures`` with what model calls carry themselves where the gateway captured nothing, and all their tokens.

    Args:
        spans: The spans that count.
        duplicates: Span that repeats a call → the span that counts; what only it carries is taken over.
        captured: What the gateway captured.
        captures: Model call → the gateway's capture.
        carried: See ``tokens_in_spans``.
    """
    if not carried.generations and not carried.problems:
        return dict(captures), captured.tokens
    held: dict[SpanKey, SpanKey] = {kept: gone for gone, kept in sorted(duplicates.items(), reverse=True)}
    found = dict(captures)
    offset = captured.tokens.height
    for span in spans:
        if span.kind is not SpanKind.LLM or span.key in found:
            continue
        for key in (span.key, held.get(span.key)):
            if key in carried.generations:
                generation = carried.generations[key]
                found[span.key] = checked(span, generation._replace(row=generation.row + offset), IN_SPAN)
                break
            if key in carried.problems:
                found[span.key] = Capture(None, IN_SPAN, carried.problems[key], 0)
                break
    return found, pl.concat([captured.tokens, carried.tokens])
