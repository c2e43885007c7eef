"""The size of modules and folders, and the graph of their imports."""

import tomllib
from collections import Counter
from pathlib import Path
from typing import Final

import grimp

ROOT = Path(__file__).parents[2]
MODULES = sorted(ROOT.glob("*/src/spanloop/**/*.py"))
MOST_LINES: Final = 400
MOST_MODULES: Final = 20


def test_no_module_is_long() -> None:
    assert len(MODULES) > 500
    lengths = {path.relative_to(ROOT): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    assert [path for path, lines in lengths.items() if lines > MOST_LINES] == []


def test_no_folder_is_full() -> None:
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in MODULES)
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_no_source_file_is_named_like_a_test() -> None:
    assert [path for path in MODULES if path.match("*_test.py") or path.match("test_*.py")] == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions and for types count too."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    graph = grimp.build_graph(*settings["tool"]["importlinter"]["root_packages"], cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imported) > 500
    assert _in_circles(imported) == set()


def _in_circles(imported: dict[str, set[str]]) -> set[str]:
    """Remove modules that import none, or that none imports, until only circles and what lies between them are left."""
    left = set(imported)
    while True:
        importing = {module for module in left if imported[module] & left}
        reached = {target for module in left for target in imported[module]}
        if left == importing & reached:
            return left
        left = importing & reached


def test_circles_are_found() -> None:
    imported: dict[str, set[str]] = {"top": {"a"}, "a": {"b"}, "b": {"c"}, "c": {"a", "low"}, "low": set()}
    assert _in_circles(imported) == {"a", "b", "c"}
    assert _in_circles({"top": {"low"}, "low": set()}) == set()
