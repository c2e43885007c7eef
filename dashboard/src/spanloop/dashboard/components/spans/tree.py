"""Draw spans as a tree with timing bars, in which a reader searches, folds and selects.

Invariant: the browser makes elements of the lines in sight only, so that a tree of ten thousand spans stays usable.
"""

import json
from collections.abc import Collection, Sequence
from typing import Any, Final

from streamlit.components.v2 import component

from spanloop.dashboard.frontend import asset
from spanloop.dashboard.view_models.formatting import count, duration, one_line
from spanloop.dashboard.view_models.span_tree import Span, SpanLine

_tree: Final[Any] = component(
    "spanloop_span_tree",
    html='<div class="tree-host"></div>',
    css=asset("tree.css"),
    js=asset("common.js") + asset("tree.js"),
)


def show(tree: str, *, key: str, find: str, matches: Collection[str], above_px: int) -> None:
    """Draw the tree; the browser reads and writes the selected span and the search in the address.

    Args:
        tree: The lines, as of `pack`.
        key: Identifies the trace or episode; folded lines and the search are forgotten with it.
        find: The text that was searched for in attributes.
        matches: Ids of the spans that have the text in an attribute.
        above_px: Height of what is above the tree; the tree fills the rest of the window.
    """
    matching = {"text": find, "ids": sorted(matches)}
    _tree(data={"key": key, "lines": tree, "matching": matching, "above": above_px}, key="span_tree")


def pack(lines: Sequence[SpanLine]) -> str:
    """Return what the browser draws of each line, as JSON of columns."""
    spans = [line.span for line in lines]
    columns = {
        "id": [span.span_id for span in spans],
        "depth": [line.depth for line in lines],
        "name": [span.name for span in spans],
        "kind": [span.kind for span in spans],
        "error": [_error(span) for span in spans],
        "note": [_note(span) for span in spans],
        "other": [span.tool_name if span.tool_name not in span.name else "" for span in spans],
        "tokens": [
            f"{count(span.input_tokens)} → {count(span.output_tokens)}"
            if span.input_tokens or span.output_tokens
            else ""
            for span in spans
        ],
        "took": [duration(span.duration_ns) for span in spans],
        "left": [round(line.offset * 100, 2) for line in lines],
        "width": [round(line.width * 100, 2) for line in lines],
    }
    shown_ns = max(span.start_ns + span.duration_ns for span in spans) - min(span.start_ns for span in spans)
    return json.dumps({"columns": columns, "took": duration(shown_ns)}, separators=(",", ":"))


def _error(span: Span) -> str:
    if not span.is_error:
        return ""
    texts = (span.error_type or "error", one_line(span.status_message, 80))
    # Many instrumentors repeat the type at the start of the message.
    return texts[1] if texts[1].startswith(texts[0]) else ": ".join(text for text in texts if text)


def _note(span: Span) -> str:
    dropped = f"{span.dropped_attributes} attributes dropped" if span.dropped_attributes else ""
    return " ".join(note for note in (dropped, span.model if span.kind == "llm" else "") if note)
