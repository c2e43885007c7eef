"""Tables of folders and packages, from the packages' docstrings and imports."""

import ast
import tomllib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

import grimp

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDERS: Final = (
    "instrumentation",
    "collector",
    "converters",
    "training",
    "gateway",
    "evaluation",
    "dashboard",
    "foundation",
    "examples",
)
"""Top-level folders in the order of the README's first paragraph, then those that serve all of them."""


class Part(NamedTuple):
    """One package of a folder."""

    folder: str
    """Top-level folder, such as ``collector``."""
    package: str
    """Full name, such as ``spanloop.store``."""
    path: Path
    """Its folder of modules."""

    @property
    def summary(self) -> str:
        """First sentence of the package's docstring, without its full stop."""
        docstring = ast.get_docstring(ast.parse((self.path / "__init__.py").read_text("utf-8"))) or ""
        return docstring.partition("\n")[0].rstrip(".").replace("``", "`")

    @property
    def subpackages(self) -> list[str]:
        """Names of the packages directly inside, in alphabetical order."""
        return sorted(path.parent.name for path in self.path.glob("*/__init__.py"))


def parts() -> list[Part]:
    """Packages that the import contracts name, from the top layer to the bottom."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    names = settings["tool"]["importlinter"]["root_packages"]
    return [_part(name) for name in reversed(names)]


def _part(name: str) -> Part:
    (path,) = ROOT.glob(f"*/src/{name.replace('.', '/')}")
    return Part(path.relative_to(ROOT).parts[0], name, path)


def folder_rows() -> Iterator[tuple[str, str, str]]:
    """Folder, package and summary of each package; the README's table."""
    by_folder = sorted(parts(), key=lambda part: FOLDERS.index(part.folder))
    for folder, members in groupby(by_folder, key=lambda part: part.folder):
        for number, part in enumerate(members):
            yield f"[{folder}/]({folder})" if number == 0 else "", f"`{part.package}`", part.summary


def package_rows() -> Iterator[tuple[str, str, str, str]]:
    """Folder, package, its subpackages, and the packages that its modules import; the architecture's table."""
    listed = parts()
    names = [part.package for part in listed]
    graph = grimp.build_graph(*names, cache_dir=None)
    for name in names:
        graph.squash_module(name)
    for part in listed:
        imported = graph.find_modules_directly_imported_by(part.package) - {part.package}
        yield (
            f"`{part.folder}/`",
            f"`{part.package}`",
            ", ".join(f"`{name}`" for name in part.subpackages) or "-",
            ", ".join(f"`{name.removeprefix('spanloop.')}`" for name in names if name in imported) or "-",
        )
