"""The pages of ``docs/how-to/extend`` as a reader follows them: write the files, run the commands.

A block whose first line is a comment with a path is a file (JSON has its path in ``title``), a block ``diff`` changes
one, and a block ``console`` has commands with their output.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs" / "how-to" / "extend"
_BLOCK: Final = re.compile(r"^```(\w+)(?: title=\"(\S+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PATH: Final = re.compile(r"(?:#|--) (\S+\.\w+)\n")
_DIFF: Final = re.compile(r"--- (\S+)\n")
_VARYING: Final = re.compile(r"\b\d+\.\d+ ?s\b(?: \(\d+:\d\d:\d\d\))?|\b\d+ deselected")
_PLUGINS: Final = "-p no:langsmith_plugin -p no:hydra_pytest -p no:cacheprovider"


class Block(NamedTuple):
    """A block of code of a page."""

    language: str
    path: str
    """Of the file that it is or changes; empty for commands and fragments."""
    text: str
    """Without the line that has the path."""


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of a page in order."""
    for language, title, text in _BLOCK.findall((FOLDER / page).read_text(encoding="utf-8")):
        match = (_DIFF if language == "diff" else _PATH).match(text)
        yield Block(language, match[1] if match else title, text[match.end() :] if match else text)


def files(page: str) -> dict[str, str]:
    """Return the files that a page writes, by path."""
    return {block.path: block.text for block in blocks(page) if block.path and block.language != "diff"}


def write_files(page: str, folder: Path) -> None:
    """Write the files of a page below ``folder``, then apply its changes to files that are there."""
    for path, text in files(page).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    for block in blocks(page):
        if block.language == "diff":
            file = folder / block.path
            file.write_text(_changed(file.read_text(encoding="utf-8"), block), encoding="utf-8")


def _changed(text: str, diff: Block) -> str:
    lines = diff.text.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] != "+")
    after = "".join(line[1:] for line in lines if line[0] != "-")
    assert text.count(before) == 1, f"{diff.path} has {text.count(before)} times:\n{before}"
    return text.replace(before, after)


def run_commands(
    page: str, folder: Path, environment: Mapping[str, str], stand_ins: Mapping[str, Callable[[], None]]
) -> None:
    """Run the commands of a page in ``folder``; each prints what the page shows, except for what varies.

    Args:
        page: Its file name.
        folder: Where its files are.
        environment: Variables beside those of this process.
        stand_ins: What is called in place of a command.
    """
    scripts = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": scripts, "PYTEST_ADDOPTS": _PLUGINS, **environment}
    for command, output in commands(page):
        if command in stand_ins:
            stand_ins[command]()
            continue
        completed = subprocess.run(
            command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert without_varying(completed.stdout) == without_varying(output), f"$ {command}\n{completed.stderr}"


def commands(page: str) -> Iterator[tuple[str, str]]:
    """Yield each command with the output that the page shows."""
    for block in blocks(page):
        if block.language == "console":
            for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                yield command, output


def without_varying(text: str) -> str:
    """Return ``text`` without seconds, the number of other tests, trailing blanks and empty lines at its end."""
    return "\n".join(line.rstrip() for line in _VARYING.sub("…", text).splitlines()).strip("\n")
