"""Model versions as a family tree. Every version that goes in comes out once, parents before children."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from spanloop.training.registry import ModelVersion

_INDENT: Final = "\u2003"
"""An em space: tables fold ordinary ones."""


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
