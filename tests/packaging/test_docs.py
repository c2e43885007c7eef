"""Documents name tests, dependencies and files that exist."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROMISES = re.findall(r"`(tests/\S+\.py)::(\w+)`", (ROOT / "docs" / "promises.md").read_text())
STEPS = re.findall(r"`(\S+\.py)::(\w+)`", (ROOT / "docs" / "design" / "life-of-a-span.md").read_text())
DOCUMENTS = [path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]]


@cache
def definitions(file: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of the functions and of the classes of a file."""
    nodes = list(ast.walk(ast.parse((ROOT / file).read_text())))
    functions = frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return functions, frozenset(node.name for node in nodes if isinstance(node, ast.ClassDef))


@pytest.mark.parametrize(("file", "test"), PROMISES)
def test_every_promise_names_a_test_that_exists(file: str, test: str) -> None:
    functions, _ = definitions(file)
    assert test in functions


@pytest.mark.parametrize(("file", "name"), STEPS)
def test_every_step_of_a_span_names_a_definition_that_exists(file: str, name: str) -> None:
    functions, classes = definitions(file)
    assert name in functions | classes


def test_the_glossary_is_short_and_gives_each_word_one_meaning() -> None:
    text = (ROOT / "docs" / "explanation" / "glossary.md").read_text()
    words = [word for word in re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE) if word != "word"]
    assert 30 < len(words) <= 50
    assert len(set(words)) == len(words)


def test_diagrams_are_pictures_that_need_no_network() -> None:
    design = ROOT / "docs" / "design"
    assert not [path for path in DOCUMENTS if "```mermaid" in (ROOT / path).read_text()]
    assert "mermaid" not in (ROOT / "zensical.toml").read_text()
    sources = list(design.glob("*.mmd"))
    assert sources
    for source in sources:
        picture = source.with_suffix(".svg").read_text()
        assert not re.findall(r"""(?:href|src)=["']https?:|url\(["']?https?:""", picture)


def test_every_dependency_is_justified() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    requirements = [
        *project["project"]["dependencies"],
        *(line for extra in project["project"]["optional-dependencies"].values() for line in extra),
        *project["dependency-groups"]["dev"],
    ]
    names = {match[0] for line in requirements if (match := re.match(r"[\w.-]+", line)) and match[0] != "spanloop"}
    text = (ROOT / "docs" / "dependencies.md").read_text().replace(", -sdk", ", opentelemetry-sdk")
    assert not [name for name in sorted(names) if not re.search(rf"[|, ]{re.escape(name)}[|, ]", text)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / document).read_text()):
        assert (ROOT / document.parent / target).exists(), target
