"""Each page of ``docs/how-to/extend`` works as it is written, and quotes ``examples/extending``."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, DATA_DIR_ENV
from spanloop.store import Store
from spanloop.store.client import Address, Connection

from ..dashboard.urls import clickhouse_url
from ..installed_packages import install
from .how_to_pages import FOLDER, ROOT, files, run_commands, write_files

PACKAGE_PAGES: Final = ("dialect.md", "environment.md", "page.md", "recipe.md", "rule.md", "tasks.md")
PROJECT: Final = "extending/pyproject.toml"
STORED: Final[Mapping[str, tuple[str, list[tuple[object, ...]]]]] = {
    "rule.md": ("SELECT rule, fault_owner, confidence FROM failures", [("stale_quote", "policy", 0.75)]),
    "dialect.md": ("SELECT model, action LIKE '%Hello.%' FROM transitions", [("tiny", 1)]),
    "environment.md": ("SELECT task_id, reward FROM attempts", [("first", 1.0)]),
    "tasks.md": ("SELECT task_id, reward FROM attempts", [("ada", 1.0)]),
}
"""Page to a query of the store after its commands, with the rows."""
LONGEST: Final = 150
"""Lines of two screens."""


def test_every_page_is_tested_and_short() -> None:
    pages = sorted(path.name for path in FOLDER.iterdir())
    assert pages == sorted([*PACKAGE_PAGES, "column.md"])
    lengths = {page: len((FOLDER / page).read_text().splitlines()) for page in pages}
    assert not {page: length for page, length in lengths.items() if length > LONGEST}


@pytest.mark.parametrize("page", PACKAGE_PAGES)
def test_a_page_quotes_the_example_package(page: str) -> None:
    written = files(page)
    project = tomllib.loads(written.pop(PROJECT))
    example = tomllib.loads((ROOT / "examples" / PROJECT).read_text())
    groups = example["project"]["entry-points"]
    entry_points = project["project"].pop("entry-points")
    assert entry_points == {group: groups[group] for group in entry_points}
    assert project["build-system"] == example["build-system"]
    assert project["project"].items() <= example["project"].items()
    assert project["tool"] == example["tool"]
    quoted = [path for path in written if path.startswith("extending/")]
    assert {path: written[path] for path in quoted} == {path: (ROOT / "examples" / path).read_text() for path in quoted}


@pytest.fixture
def environment(tmp_path: Path, address: Address) -> dict[str, str]:
    """Variables of the commands; no collector is needed, because no agent sends spans."""
    return {
        DATA_DIR_ENV: str(tmp_path / "data"),
        CLICKHOUSE_URL_ENV: clickhouse_url(address),
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
    }


@pytest.mark.parametrize("page", PACKAGE_PAGES)
def test_a_page_works_as_it_is_written(
    page: str, tmp_path: Path, environment: dict[str, str], connection: Connection
) -> None:
    write_files(page, tmp_path)
    site = tmp_path / "site-packages"
    run_commands(
        page,
        tmp_path,
        {**environment, "PYTHONPATH": str(site)},
        {"pip install ./extending": lambda: install(tmp_path / "extending", site)},
    )
    if page in STORED:
        statement, rows = STORED[page]
        assert connection.query(statement, doing="reading what a page stored").rows() == rows


def test_a_column_is_added_to_a_copy_of_the_project(
    tmp_path: Path, environment: dict[str, str], address: Address
) -> None:
    with Store.open(address):  # migrates to the version of the project without the column
        pass
    variables = {**environment, **copied_project(tmp_path)}
    write_files("column.md", tmp_path)
    run_commands("column.md", tmp_path, variables, {"python docs/generate.py": lambda: None})
    reference = "from spanloop.converters.schema import markdown; print(markdown())"
    command = [sys.executable, "-c", reference]
    page = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=True).stdout
    assert "| `agent_count` | " in page
    connection = Connection(address)
    stored = connection.query("SELECT agent_count FROM episodes FINAL", doing="reading the column")
    connection.close()
    assert stored.rows() == [(1,)]


def copied_project(folder: Path) -> dict[str, str]:
    """Copy what the page on columns changes into ``folder``; return the variables with which a command uses it."""
    packages = [f"{name}/src" for name in ("foundation", "collector", "converters")]
    for name in (*packages, "tests/converters/converters"):
        shutil.copytree(ROOT / name, folder / name)
    for name in ("pyproject.toml", "tests/conftest.py", "tests/databases.py", "tests/installed_packages.py"):
        shutil.copy(ROOT / name, folder / name)
    return {"PYTHONPATH": os.pathsep.join(str(folder / name) for name in packages)}
