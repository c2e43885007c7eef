"""HTML for what Streamlit has no element for: the span tree and the token strip; escaping of Markdown.

Invariant: every text from the store is escaped; only numbers and constants of this module reach an attribute
unescaped. Styles are inline and use translucent greys, so that light and dark themes both work.
"""

import re
from html import escape
from typing import Final

from spanloop.dashboard.view_models.formatting import AMBER, BLUE, GREY, RED, count, duration, one_line
from spanloop.dashboard.view_models.span_tree import SpanKind, SpanLine
from spanloop.dashboard.view_models.token_cells import TokenCell

_BAR_COLOURS: Final[dict[SpanKind, str]] = {"llm": BLUE, "tool": AMBER, "agent": GREY, "task": GREY, "other": GREY}
_MARKDOWN: Final = re.compile(
    r"""
      (?P<replaced>
          (?<=[<>=~-])(?=[<>=~-])                   # <- -> >= --
        | (?<=:)(?=//|[\w+/-]*:)                    # https:// :smile: :material/delete:
        | (?<=@)(?=[\w-]+\.)                        # someone@example.com
        | (?<=www)(?=\.)
      )
    | (?P<edge>[\r\n]|\A[ \t]|[ \t]\Z)             # would end the emphasis or the paragraph around the text
    | (?P<number>\A\d{1,9}(?=[.)](?:\s|\Z)))        # a list
    | (?P<escaped>[\\`*_\[\]<>#|~$&]|:(?=\S)|\A[-+](?=\s|\Z))
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Characters with a meaning (``&`` begins a character reference, ``:`` a directive), and the places within arrows,
emoji, icons and links, which Streamlit replaces whether they are escaped or not."""
_EMPTY: Final = ":small[]"
"""Markdown that draws nothing. Streamlit replaces within one text node; this divides a text into two."""
_MAX_INDENT: Final = 14
_LINE: Final = "border-top:1px solid rgba(128,128,128,.18)"
_GRID: Final = (
    "display:grid;grid-template-columns:minmax(0,5fr) 64px 92px 76px minmax(0,4fr);gap:0 12px;align-items:center"
)
_NUMBER: Final = "text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap"
_QUIET: Final = "opacity:.8"
"""Opacity of text beside the main text; less is too little contrast to be read."""
_HEAD: Final = 'role="columnheader"'
_CELL: Final = 'role="cell"'
_CUT: Final = "overflow:hidden;text-overflow:ellipsis;white-space:nowrap"


def span_tree(lines: list[SpanLine]) -> str:
    """Return a table of spans: indented name, kind, tokens, duration and a bar on the common time axis."""
    head = (
        f'<div role="row" style="{_GRID};{_QUIET};font-size:.8rem;padding:2px 0">'
        f'<div {_HEAD}>span</div><div {_HEAD}>kind</div><div {_HEAD} style="{_NUMBER}">tokens</div>'
        f'<div {_HEAD} style="{_NUMBER}">took</div><div {_HEAD}>when</div></div>'
    )
    body = "".join(_span_line(line) for line in lines)
    return f'<div role="table" style="font-size:.875rem;line-height:1.5">{head}{body}</div>'


def token_strip(cells: list[TokenCell], *, with_text: bool = True, with_id: bool = False) -> str:
    """Return tokens in order: sampled ones blue (stronger when unlikely), given ones grey, the prompt without colour.

    A token without text always shows its id.
    """
    body = "".join(_token(cell, with_text=with_text, with_id=with_id) for cell in cells)
    style = "font-family:monospace;font-size:.8rem;line-height:1.9;overflow-wrap:anywhere"
    return f'<div style="{style}">{body}</div>'


def token_legend() -> str:
    """Return the legend of a token strip."""
    parts = (
        ("transparent", "prompt"),
        (_rgba(BLUE, 0.15), "sampled by the policy, likely"),
        (_rgba(BLUE, 0.6), "sampled, unlikely (5 % or less)"),
        ("rgba(128,128,128,.25)", "given between turns, masked out of the loss"),
    )
    swatch = "display:inline-block;width:12px;height:12px;border:1px solid rgba(128,128,128,.5);margin:0 6px -1px 0"
    body = "".join(
        f'<span style="margin-right:18px"><span style="{swatch};background:{colour}"></span>{escape(text)}</span>'
        for colour, text in parts
    )
    return f'<div style="font-size:.8rem;opacity:.85">{body}</div>'


def text_block(text: str, *, at_most: int = 20_000) -> str:
    """Return text verbatim and wrapped; it is never read as Markdown, so a message cannot load an image."""
    hidden = len(text) - at_most
    more = f'<div style="{_QUIET}">… {hidden:,} more characters</div>' if hidden > 0 else ""
    return f'<div style="white-space:pre-wrap;overflow-wrap:anywhere">{escape(text[:at_most])}</div>{more}'


def escape_md(text: str) -> str:
    """Escape text for one line of a Markdown element or label, so that it is drawn as it is.

    Stored names and errors become no links, images, icons, emoji or arrows, and do not end the emphasis around them.
    """
    return _MARKDOWN.sub(_escaped, text)


def truncate(text: str, at_most: int = 20_000) -> str:
    """Cut long text of a code block, which would make a page slow, and append the number of hidden characters."""
    hidden = len(text) - at_most
    return f"{text[:at_most]}\n… {hidden:,} more characters" if hidden > 0 else text


def _escaped(match: re.Match[str]) -> str:
    match match.lastgroup:
        case "replaced":
            return _EMPTY
        case "edge":
            return f"&#{ord(match[0])};"
        case "number":
            return f"{match[0]}\\"
        case _:
            return f"\\{match[0]}"


def _span_line(line: SpanLine) -> str:
    span = line.span
    indent = 14 * min(line.depth, _MAX_INDENT)
    deeper = f'<span style="{_QUIET}">↳{line.depth} </span>' if line.depth > _MAX_INDENT else ""
    colour = RED if span.is_error else _BAR_COLOURS[span.kind]
    tokens = (
        f"{count(span.input_tokens)} → {count(span.output_tokens)}" if span.input_tokens or span.output_tokens else ""
    )
    left = min(line.offset * 100, 99.4)
    width = max(min(line.width * 100, 100 - left), 0.6)
    bar = (
        '<div style="position:relative;height:10px;background:rgba(128,128,128,.10);border-radius:2px">'
        f'<div style="position:absolute;left:{left:.2f}%;width:{width:.2f}%;height:100%;'
        f'background:{colour};border-radius:2px"></div></div>'
    )
    title = escape(f"{span.name} · span {span.span_id}", quote=True)
    return (
        f'<div role="row" style="{_GRID};{_LINE};padding:3px 0">'
        f'<div {_CELL} title="{title}" style="padding-left:{indent}px;{_CUT}">'
        f"{deeper}{escape(span.name)}{_span_notes(line)}</div>"
        f'<div {_CELL} style="{_QUIET}">{span.kind if span.kind != "other" else ""}</div>'
        f'<div {_CELL} style="{_NUMBER};{_QUIET}">{tokens}</div>'
        f'<div {_CELL} style="{_NUMBER}">{duration(span.duration_ns)}</div><div {_CELL}>{bar}</div></div>'
    )


def _span_notes(line: SpanLine) -> str:
    span = line.span
    notes: list[str] = []
    if span.is_error:
        texts = (span.error_type or "error", one_line(span.status_message, 80))
        # Many instrumentors repeat the type at the start of the message.
        error = texts[1] if texts[1].startswith(texts[0]) else ": ".join(text for text in texts if text)
        notes.append(f'<span style="color:{_as_text(RED)}"> ✕ {escape(error)}</span>')
    if span.dropped_attributes:
        notes.append(f'<span style="color:{_as_text(AMBER)}"> {span.dropped_attributes} attributes dropped</span>')
    if span.model and span.kind == "llm":
        notes.append(f'<span style="{_QUIET}"> {escape(span.model)}</span>')
    return "".join(notes)


def _token(cell: TokenCell, *, with_text: bool, with_id: bool) -> str:
    match cell.role:
        case "sampled":
            background = _rgba(BLUE, 0.12 + 0.5 * cell.surprise)
        case "given":
            background = "rgba(128,128,128,.25)"
        case "prompt":
            background = "transparent"
    logprob = f" · logprob {cell.logprob:.3f}" if cell.logprob is not None else ""
    title = escape(f"{cell.role} {cell.position} · id {cell.token_id}{logprob}", quote=True)
    label = escape(_visible_whitespace(cell.text)) if with_text else ""
    if with_id or not label:
        small = f"font-size:.65rem;{_QUIET}" if label else ""
        label += f'<span style="{small}">{" " if label else ""}{cell.token_id}</span>'
    opacity = f";{_QUIET}" if cell.role == "prompt" else ""
    return (
        f'<span title="{title}" style="background:{background};padding:1px 3px;margin-right:2px;border-radius:3px'
        f'{opacity}">{label}</span>' + ("<br>" if cell.text.endswith("\n") else " ")
    )


def _as_text(colour: str) -> str:
    """Return the colour with the contrast that text needs, in both themes."""
    return f"color-mix(in srgb,{colour} 60%,currentcolor)"


def _visible_whitespace(text: str) -> str:
    return text.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "·")


def _rgba(colour: str, alpha: float) -> str:
    red, green, blue = (int(colour[index : index + 2], 16) for index in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:.2f})"
