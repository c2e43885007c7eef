"""Names and docstrings of the conversion say what a value is, not how it came about.

A variable called ``found`` or ``told`` names its history; a docstring that begins with "Of" or "What" is a part of a
sentence.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parents[2] / "converters" / "src" / "spanloop"
VAGUE: Final = frozenset(
    {
        "asked", "bare", "circling", "complaint", "echo", "family", "found", "got", "heard", "homes", "told",
        "lanes", "own", "pieces", "ragged", "reached", "said", "says", "sighting", "silent", "talk", "tells",
        "uneven", "unlinked", "unnamed", "untold", "usual", "wanted",
    }
)  # fmt: skip
"""Words that no name contains between its underscores."""
OPENINGS: Final = frozenset({"Of", "What", "How"})
"""Words that begin no docstring."""


def vague_names(tree: ast.AST) -> Iterator[str]:
    """Yield what defines a vague name, and the beginning of each docstring that is no sentence."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                pass
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                pass
            case ast.alias(asname=str(name)):
                pass
            case ast.Expr(value=ast.Constant(value=str(text))):
                opening = " ".join(text.split()[:5])
                if opening.partition(" ")[0].rstrip(",:") in OPENINGS:
                    yield f"{node.lineno}: {opening} …"
                continue
            case _:
                continue
        if VAGUE & set(name.lower().split("_")):
            yield f"{getattr(node, 'lineno', 0)}: {name}"


def test_no_module_has_a_vague_name() -> None:
    vague = {
        path.relative_to(SOURCE).as_posix(): list(vague_names(ast.parse(path.read_text("utf-8"))))
        for path in sorted(SOURCE.rglob("*.py"))
    }
    assert len(vague) > 100
    assert {module: names for module, names in vague.items() if names} == {}


def test_vague_names_and_docstrings_are_recognised() -> None:
    code = '''
"""What a module does."""
class Asked:
    """An item.  """
    told: str
    """Of the item."""
    def text(self, own_id: str, *, saying: str) -> str:
        found = self.found = [said for said in saying]
        return f"{found}"
'''
    assert sorted(item.partition(": ")[2] for item in vague_names(ast.parse(code))) == [
        "Asked", "Of the item. …", "What a module does. …", "found", "found", "own_id", "said", "told",
    ]  # fmt: skip
