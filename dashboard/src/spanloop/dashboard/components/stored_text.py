"""HTML of stored texts: Markdown that loads nothing and links nowhere, and JSON that folds.

Invariant: every character of a text that is not Markdown's own markup is drawn as it is. No image, link or tag of a
text becomes one of the page; numbers of JSON keep their digits.
"""

import json
from html import escape
from typing import Any, Final, NamedTuple, TypeGuard

from markdown_it import MarkdownIt

from spanloop.dashboard.components import markup
from spanloop.foundation.surrogates import replace_surrogates

_MAX_CHARACTERS: Final = 20_000
_MAX_LINES: Final = 1_500
_MAX_DEPTH: Final = 40
_OPEN_LINES: Final = 14
"""A value with at most so many lines is drawn open."""
_TAGS: Final = ("image", "link", "autolink", "html_inline", "html_block", "reference")
_MARKDOWN: Final = (
    MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"]).disable(_TAGS)
)


def markdown_block(text: str) -> str:
    """Return a text with its Markdown drawn; headings become small ones, links and images stay text."""
    hidden = len(text) - _MAX_CHARACTERS
    tokens = _MARKDOWN.parse(text[:_MAX_CHARACTERS])
    for token in tokens:
        if token.type in {"heading_open", "heading_close"}:
            token.tag = f"h{min(6, int(token.tag[1:]) + 3)}"
    more = f"<p>… {hidden:,} more characters</p>" if hidden > 0 else ""
    return f'<div class="stored-text">{_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {})}{more}</div>'


def json_block(text: str) -> str | None:
    """Return a JSON object or list whose parts fold; None for any other text."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        loaded: Any = json.loads(
            text, parse_int=_Literal, parse_float=_Literal, parse_constant=_Literal, object_pairs_hook=_Pairs
        )
        lines = _count(loaded)
    except (ValueError, RecursionError):
        return None
    if lines > _MAX_LINES or len(text) > 50 * _MAX_CHARACTERS:
        return None
    return f'<div class="stored-json">{_value("", loaded, is_open=True, depth=0)}</div>'


class _Literal(str):
    """A number as it is written."""

    __slots__ = ()


class _Pairs(tuple[tuple[str, Any], ...]):
    """The members of an object, of which two may have one name."""

    __slots__ = ()


class _Members(NamedTuple):
    names: list[str]
    values: list[Any]
    brackets: str


def _members(value: object) -> _Members | None:
    if isinstance(value, _Pairs):
        return _Members(
            [f"{json.dumps(name, ensure_ascii=False)}: " for name, _ in value], [each for _, each in value], "{}"
        )
    if _is_list(value):
        return _Members([""] * len(value), value, "[]")
    return None


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _count(value: Any, depth: int = 0) -> int:
    """Return the number of lines of a value.

    Raises:
        RecursionError: It is nested too deep to be drawn.
    """
    if depth > _MAX_DEPTH:
        raise RecursionError
    members = _members(value)
    return 1 if members is None else 1 + sum(_count(each, depth + 1) for each in members.values)


def _value(name: str, value: Any, *, is_open: bool, depth: int) -> str:
    members = _members(value)
    label = escape(replace_surrogates(name))
    if members is None:
        return f"<div>{label}{_scalar(value)}</div>"
    first, last = members.brackets[0], members.brackets[1]
    if not members.values:
        return f"<div>{label}{members.brackets}</div>"
    inside = "".join(
        _value(each_name, each, is_open=_count(each) <= _OPEN_LINES, depth=depth + 1)
        for each_name, each in zip(members.names, members.values, strict=True)
    )
    size = len(members.values)
    unit = ("item" if first == "[" else "field") + ("" if size == 1 else "s")
    return (
        f"<details{' open' if is_open else ''}><summary>{label}{first} <i>{size:,} {unit}</i> {last}</summary>"
        f"<div>{inside}</div></details>"
    )


def _scalar(value: Any) -> str:
    if isinstance(value, _Literal):
        return escape(value)
    if isinstance(value, str):
        # A text of several lines is drawn as these lines.
        text = replace_surrogates(value)
        shown = markup.truncate(text)
        return escape(shown) if "\n" in text else escape(json.dumps(shown, ensure_ascii=False))
    return escape(json.dumps(value))
