"""HTML for what Streamlit has no element for, such as the token strip; escaping of Markdown.

Invariant: every text from the store is escaped; only numbers and constants of this module reach an attribute
unescaped. Styles are inline and use translucent greys, so that light and dark themes both work.
"""

import re
from html import escape
from typing import Final

from spanloop.dashboard.view_models.formatting import AMBER, BLUE
from spanloop.dashboard.view_models.token_cells import TokenCell

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
_QUIET: Final = "opacity:.8"
"""Opacity of text beside the main text; less is too little contrast to be read."""


def token_strip(cells: list[TokenCell], *, with_text: bool = True, with_id: bool = False) -> str:
    """Return tokens in order: sampled ones blue (stronger when unlikely), given ones grey, the prompt without colour.

    Sampled tokens that are left out of the loss are amber. A token without text always shows its id.
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
        (_rgba(AMBER, 0.3), "sampled in a step that is not trained on, masked out of the loss"),
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


def _token(cell: TokenCell, *, with_text: bool, with_id: bool) -> str:
    match cell.role:
        case "sampled":
            background = _rgba(BLUE, 0.12 + 0.5 * cell.surprise)
        case "left out":
            background = _rgba(AMBER, 0.3)
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


def _visible_whitespace(text: str) -> str:
    return text.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "·")


def _rgba(colour: str, alpha: float) -> str:
    red, green, blue = (int(colour[index : index + 2], 16) for index in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:.2f})"
