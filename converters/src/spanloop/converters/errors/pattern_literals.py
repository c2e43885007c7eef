# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Literals of a regular expression: texts of which every match contains at least one.

Invariant: a lower-case text without any literal of a pattern has no match of the pattern, so a multi-pattern search
for literals replaces most regular expression searches.
"""

import re
from collections.abc import Iterable, Sequence
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple

_MOST: Final = 100
"""Literals that a run of alternatives may expand to."""

_MOST_CHARACTERS: Final = 16
"""Characters of a range that are listed one by one."""

CASE_VARIANTS: Final = frozenset("\u0131\u0307\u017f\u1c80\u1c81\u1c82\u1c83\u1c84\u1c85\u1c86\u1c87\u1c88")
"""Characters that ``re.IGNORECASE`` takes for letters which ``str.lower`` does not make of them."""

Node = tuple[Any, Any]


class _Texts(NamedTuple):
    """The texts that a part of a pattern matches."""

    exact: frozenset[str] | None
    """All texts that it matches, in lower case; None where they are not countable."""
    required: frozenset[str]
    """Texts of which each match contains one; holds an empty text where nothing is sure."""


_NOTHING: Final = frozenset({""})
_ANYTHING: Final = _Texts(None, _NOTHING)


def required_literals(pattern: re.Pattern[str]) -> frozenset[str]:
    """Return lower-case texts of which every match contains at least one, or a character of ``CASE_VARIANTS``.

    Raises:
        ValueError: Some match contains no literal.
    """
    texts = _of_sequence(_parser.parse(pattern.pattern, pattern.flags))
    if "" in texts.required:
        raise ValueError(f"expected a literal in every match of {pattern.pattern!r}, got a match without one")
    shortest = (text for text in texts.required if not any(text.find(other) >= 0 for other in texts.required - {text}))
    return CASE_VARIANTS.union(shortest)


def _of_sequence(nodes: Iterable[Node]) -> _Texts:
    required, run, is_exact = _NOTHING, _NOTHING, True
    for op, value in nodes:
        piece = _of_node(op, value)
        if piece.exact is not None and len(run) * len(piece.exact) <= _MOST:
            run = frozenset(start + end for start in run for end in piece.exact)
            continue
        required = max(required, run, piece.required, key=_selectivity)
        run, is_exact = piece.exact if piece.exact is not None and len(piece.exact) <= _MOST else _NOTHING, False
    required = max(required, run, key=_selectivity)
    return _Texts(run if is_exact else None, required)


def _selectivity(texts: frozenset[str]) -> tuple[int, int]:
    return min(map(len, texts)), -len(texts)


def _of_node(op: object, value: Any) -> _Texts:
    texts = _ANYTHING
    if op is ops.LITERAL:
        texts = _exactly({chr(value).lower()})
    elif op in {ops.AT, ops.ASSERT, ops.ASSERT_NOT}:
        texts = _exactly(_NOTHING)
    elif op is ops.SUBPATTERN:
        texts = _of_sequence(value[3])
    elif op is ops.BRANCH:
        texts = _of_branches([_of_sequence(branch) for branch in value[1]])
    elif op in {ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT}:
        texts = _of_repeat(value[0], value[1], _of_sequence(value[2]))
    elif op is ops.IN:
        texts = _of_characters(value)
    return texts


def _of_characters(items: Sequence[Node]) -> _Texts:
    codes: set[int] = set()
    for kind, value in items:
        if kind is ops.LITERAL:
            codes.add(value)
        elif kind is ops.RANGE and value[1] - value[0] <= _MOST_CHARACTERS:
            codes |= set(range(value[0], value[1] + 1))
        else:
            return _ANYTHING
    return _exactly(chr(code).lower() for code in codes)


def _of_repeat(least: int, most: int, texts: _Texts) -> _Texts:
    if (least, most) == (0, 1) and texts.exact is not None:
        return _exactly(texts.exact | _NOTHING)
    return _Texts(None, texts.required) if least else _ANYTHING


def _exactly(texts: Iterable[str]) -> _Texts:
    exact = frozenset(texts)
    return _Texts(exact, exact)


def _of_branches(branches: Sequence[_Texts]) -> _Texts:
    exact: set[str] | None = set()
    required: set[str] = set()
    for branch in branches:
        exact = None if exact is None or branch.exact is None else exact | branch.exact
        required |= branch.required
    return _Texts(None if exact is None else frozenset(exact), frozenset(required))
