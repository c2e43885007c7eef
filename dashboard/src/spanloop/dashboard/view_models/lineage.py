"""Lineage of model versions, as lines of a table and as a graph.

Invariant: every version appears once, parents before children.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from spanloop.dashboard.view_models.formatting import BLUE, GREEN, GREY
from spanloop.training.models.registry import ModelVersion

_INDENT: Final = "\u2003"
"""An em space, because tables collapse ordinary spaces."""

_COLOURS: Final = {False: ("#eef4ff", "#1f2328"), True: ("#17253f", "#e6edf7")}
"""Whether the theme is dark to the colours of a node and of its text; Graphviz has no themes of its own."""
_FONT: Final = "Helvetica,Arial,sans-serif"


@dataclass(frozen=True, slots=True)
class LineageLine:
    """One version in the tree."""

    model: ModelVersion
    depth: int
    """0 for a version without a registered parent."""

    @property
    def label(self) -> str:
        """The reference, indented by depth."""
        return f"{_INDENT * (self.depth - 1)}└ {self.model.reference}" if self.depth else self.model.reference


@dataclass(frozen=True, slots=True)
class VersionNotes:
    """Texts of the graph about one version."""

    version: tuple[str, ...] = ()
    """Lines under the version's name."""
    job: tuple[str, ...] = ()
    """Lines on the edge from its parent, about the job that made it."""


def order_lineage(models: tuple[ModelVersion, ...]) -> list[LineageLine]:
    """Order versions as a tree, siblings by age."""
    ordered = sorted(models, key=lambda model: (model.created_at, model.reference))
    references = {model.reference for model in ordered}
    children: defaultdict[str, list[ModelVersion]] = defaultdict(list)
    roots: list[ModelVersion] = []
    for model in ordered:
        parent = model.parent or ""
        if parent in references and parent != model.reference:
            children[parent].append(model)
        else:
            roots.append(model)
    lines: list[LineageLine] = []
    stack = [(root, 0) for root in reversed(roots)]
    while stack:
        model, depth = stack.pop()
        lines.append(LineageLine(model, depth))
        stack.extend((child, depth + 1) for child in reversed(children[model.reference]))
    return lines


def lineage_graph(
    lines: list[LineageLine],
    notes: Mapping[str, VersionNotes],
    *,
    served: str,
    selected: str,
    is_dark: bool = False,
) -> str:
    """Return the tree as a left-to-right graph in Graphviz' DOT language; versions and jobs link to their pages.

    ``lines`` have parents first; ``notes`` are by reference. The version that the gateway serves has a green frame, the
    selected one a thick frame.
    """
    references = {line.model.reference for line in lines}
    fill, text = _COLOURS[is_dark]
    node = (
        f'shape=box, style="rounded,filled", fillcolor="{fill}", color="{BLUE}", fontcolor="{text}", '
        f'fontname="{_FONT}", fontsize=12, margin="0.18,0.12", target="_self"'
    )
    statements = [
        "rankdir=LR; bgcolor=transparent; nodesep=0.35; ranksep=0.9",
        f"node [{node}]",
        f'edge [color="{GREY}", fontcolor="{GREY}", fontname="{_FONT}", fontsize=11, arrowsize=0.7, target="_self"]',
    ]
    for line in lines:
        model = line.model
        note = notes.get(model.reference, VersionNotes())
        title = f"{model.reference} · served" if model.reference == served else model.reference
        colour = GREEN if model.reference == served else BLUE
        width = 3 if model.reference == selected else 1.2
        statements.append(
            f"{_quoted(model.reference)} [label={_quoted(title, *note.version)}, color={_quoted(colour)}, "
            f"penwidth={width}, URL={_quoted(f'/models?model={quote(model.reference)}')}, "
            f"tooltip={_quoted(model.reference)}]"
        )
        if line.depth and model.parent in references:
            link = f", URL={_quoted(f'/jobs?job={quote(model.job_id)}')}" if model.job_id else ""
            statements.append(
                f"{_quoted(model.parent or '')} -> {_quoted(model.reference)} "
                f"[label={_quoted(*note.job)}, tooltip={_quoted(model.job_id or '')}{link}]"
            )
    return "digraph lineage {\n" + "".join(f"  {statement};\n" for statement in statements) + "}\n"


def _quoted(*lines: str) -> str:
    """Quote lines as one DOT string."""
    return '"' + "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines) + '"'
