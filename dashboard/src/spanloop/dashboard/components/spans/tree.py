"""Draw spans as a tree with timing bars, in which a reader searches, folds and selects.

Invariant: the browser makes elements of the lines in sight only, so that a tree of ten thousand spans stays usable.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

from streamlit.components.v2 import component

from spanloop.dashboard.components.tables import asset
from spanloop.dashboard.view_models.formatting import count, duration, one_line
from spanloop.dashboard.view_models.span_tree import SpanLine

_tree: Final[Any] = component(
    "spanloop_span_tree",
    html='<div class="tree-host"></div>',
    css=asset("tree.css"),
    js=asset("common.js") + asset("tree.js"),
)


def show(
    lines: Sequence[SpanLine],
    *,
    key: str,
    selected: str,
    span_href: str,
    close_href: str,
    find_href: str,
    find: str,
    matches: Collection[str],
    above_px: int,
) -> None:
    """Draw the tree.

    Args:
        lines: The spans in the order of the tree.
        key: Identifies the trace or episode; folded lines and the search are forgotten with it.
        selected: Id of the selected span, empty for none.
        span_href: Address of a span, with ``{id}`` where its id stands.
        close_href: Address without a selected span.
        find_href: Address that also searches attributes, with ``{text}`` where the text stands.
        find: The text that was searched for in attributes.
        matches: Ids of the spans that have the text in an attribute.
        above_px: Height of what is above the tree; the tree fills the rest of the window.
    """
    _tree(
        data={
            "key": key,
            "lines": tree_data(lines),
            "selected": selected,
            "href": span_href,
            "closeHref": close_href,
            "findHref": find_href,
            "found": {"text": find, "ids": sorted(matches)},
            "took": duration(_shown_ns(lines)),
            "above": above_px,
        },
        key="span_tree",
    )


def tree_data(lines: Sequence[SpanLine]) -> list[dict[str, object]]:
    """Return what the browser draws of each line."""
    deeper = [line.depth for line in lines[1:]] + [0]
    return [_line(line, is_parent=next_depth > line.depth) for line, next_depth in zip(lines, deeper, strict=True)]


def _line(line: SpanLine, *, is_parent: bool) -> dict[str, object]:
    span = line.span
    error = ""
    if span.is_error:
        texts = (span.error_type or "error", one_line(span.status_message, 80))
        # Many instrumentors repeat the type at the start of the message.
        error = texts[1] if texts[1].startswith(texts[0]) else ": ".join(text for text in texts if text)
    notes = (
        f"{span.dropped_attributes} attributes dropped" if span.dropped_attributes else "",
        span.model if span.kind == "llm" else "",
    )
    words = (span.name, span.kind, span.model, span.tool_name, span.error_type, span.status_message, span.span_id)
    return {
        "id": span.span_id,
        "parent": span.parent_span_id if line.depth else "",
        "depth": line.depth,
        "name": span.name,
        "kind": span.kind,
        "isParent": is_parent,
        "error": error,
        "note": " ".join(note for note in notes if note),
        "tokens": f"{count(span.input_tokens)} → {count(span.output_tokens)}"
        if span.input_tokens or span.output_tokens
        else "",
        "took": duration(span.duration_ns),
        "left": round(line.offset * 100, 2),
        "width": round(line.width * 100, 2),
        "words": " ".join(words).lower(),
    }


def _shown_ns(lines: Sequence[SpanLine]) -> int:
    first = min(line.span.start_ns for line in lines)
    return max(line.span.start_ns + line.span.duration_ns for line in lines) - first
