"""Model versions as a family tree, in lines and as a picture.

Every version that goes in comes out once, parents before children.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from spanloop.dashboard.components.markup import BLUE, GREEN, GREY
from spanloop.training.registry import ModelVersion

_INDENT: Final = "\u2003"
"""An em space: tables fold ordinary ones."""

_FILL: Final = "#eef4ff"
_INK: Final = "#1f2328"
"""Text on ``_FILL``: Graphviz knows no theme, so nodes bring both and look the same in light and dark."""
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
    """What a picture says about one version."""

    version: tuple[str, ...] = ()
    """Lines under its name."""
    job: tuple[str, ...] = ()
    """Lines on the edge from its parent: the job that made it."""


def lineage(models: tuple[ModelVersion, ...]) -> list[LineageLine]:
    """Versions ordered as a tree, siblings by age."""
    ordered = sorted(models, key=lambda model: (model.created_at, model.reference))
    known = {model.reference for model in ordered}
    children: defaultdict[str, list[ModelVersion]] = defaultdict(list)
    roots: list[ModelVersion] = []
    for model in ordered:
        parent = model.parent or ""
        if parent in known and parent != model.reference:
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


def picture(lines: list[LineageLine], notes: Mapping[str, VersionNotes], *, served: str, chosen: str) -> str:
    """The tree as a graph in Graphviz' DOT language, from left to right; versions and jobs link to their pages.

    Args:
        lines: The versions, parents first.
        notes: What stands under a version's name and on the edge that leads to it, by reference.
        served: The reference that the gateway serves, framed green.
        chosen: The reference that the page shows, framed thick.
    """
    known = {line.model.reference for line in lines}
    node = (
        f'shape=box, style="rounded,filled", fillcolor="{_FILL}", color="{BLUE}", fontcolor="{_INK}", '
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
        width = 3 if model.reference == chosen else 1.2
        statements.append(
            f"{_quoted(model.reference)} [label={_quoted(title, *note.version)}, color={_quoted(colour)}, "
            f"penwidth={width}, URL={_quoted(f'/models?model={quote(model.reference)}')}, "
            f"tooltip={_quoted(model.reference)}]"
        )
        if line.depth and model.parent in known:
            link = f", URL={_quoted(f'/jobs?job={quote(model.job_id)}')}" if model.job_id else ""
            statements.append(
                f"{_quoted(model.parent or '')} -> {_quoted(model.reference)} "
                f"[label={_quoted(*note.job)}, tooltip={_quoted(model.job_id or '')}{link}]"
            )
    return "digraph lineage {\n" + "".join(f"  {statement};\n" for statement in statements) + "}\n"


def _quoted(*lines: str) -> str:
    """A DOT string of one or more lines; nothing in it ends the string."""
    return '"' + "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines) + '"'
