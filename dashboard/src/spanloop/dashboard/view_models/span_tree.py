"""Lay out spans as a tree with timing bars.

Invariant: every span appears exactly once, parents before children, for any parent ids: a span whose parent is missing
is a root, and a cycle starts at its earliest span. Without recursion, so that depth has no limit.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final, Literal

SpanKind = Literal["task", "agent", "llm", "tool", "other"]

_KINDS: Final[dict[str, SpanKind]] = {
    "chat": "llm",
    "text_completion": "llm",
    "generate_content": "llm",
    "embeddings": "llm",
    "execute_tool": "tool",
    "invoke_agent": "agent",
    "create_agent": "agent",
    "invoke_workflow": "agent",
}


@dataclass(frozen=True, slots=True)
class Span:
    """One span, without its attribute map."""

    trace_id: str
    span_id: str
    parent_span_id: str
    """Empty for a root."""
    name: str
    start_ns: int
    """Since the epoch."""
    duration_ns: int
    status: str
    """``Unset``, ``Ok`` or ``Error``, as the exporter writes them."""
    status_message: str = ""
    operation: str = ""
    """``gen_ai.operation.name``; empty when the span carries none."""
    model: str = ""
    tool_name: str = ""
    error_type: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    dropped_attributes: int = 0

    @property
    def kind(self) -> SpanKind:
        """The kind by the span's GenAI operation, else by its attributes or name."""
        if self.operation in _KINDS:
            return _KINDS[self.operation]
        if self.tool_name:
            return "tool"
        if self.name.startswith("task "):
            return "task"
        return "llm" if self.model else "other"

    @property
    def is_error(self) -> bool:
        """Whether the span has an error status or type."""
        return self.status.lower() in {"error", "status_code_error"} or bool(self.error_type)


@dataclass(frozen=True, slots=True)
class SpanLine:
    """One line of the tree."""

    span: Span
    depth: int
    """0 for a root."""
    offset: float
    """The bar's start, as a share of the shown time, 0 to 1."""
    width: float
    """The bar's length, as a share of the shown time, 0 to 1."""


def layout_tree(spans: list[Span]) -> list[SpanLine]:
    """Order ``spans`` as a tree and place their bars on one common time axis."""
    if not spans:
        return []
    first_ns = min(span.start_ns for span in spans)
    total_ns = max(max(span.start_ns + span.duration_ns for span in spans) - first_ns, 1)
    return [
        SpanLine(
            span=span, depth=depth, offset=(span.start_ns - first_ns) / total_ns, width=span.duration_ns / total_ns
        )
        for span, depth in _in_tree_order(spans)
    ]


def _in_tree_order(spans: list[Span]) -> list[tuple[Span, int]]:
    ordered = sorted(spans, key=lambda span: (span.start_ns, span.span_id))
    keys = {(span.trace_id, span.span_id) for span in ordered}
    children: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    roots: list[int] = []
    for position, span in enumerate(ordered):
        parent = (span.trace_id, span.parent_span_id)
        if span.parent_span_id and parent in keys and span.parent_span_id != span.span_id:
            children[parent].append(position)
        else:
            roots.append(position)
    lines: list[tuple[Span, int]] = []
    visited: set[int] = set()
    # A cycle has no root: after the real roots, each unvisited span is tried as one.
    for root in (*roots, *range(len(ordered))):
        stack = [(root, 0)]
        while stack:
            position, depth = stack.pop()
            if position in visited:
                continue
            visited.add(position)
            span = ordered[position]
            lines.append((span, depth))
            stack.extend((child, depth + 1) for child in reversed(children[span.trace_id, span.span_id]))
    return lines
