"""The blocks of a page that say where they run: the title names the hosts."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_BLOCK = re.compile(r'^```(\w+) title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_SERVICE = re.compile(r"^(?:spanloop serve|ray start) .*$", re.MULTILINE)


class Block(NamedTuple):
    """A block of commands, or a file."""

    language: str
    hosts: tuple[str, ...]
    path: str
    """Of a file, where the host has it; empty for commands."""
    text: str

    @property
    def services(self) -> list[tuple[str, str]]:
        """The name and the script of each command that runs on: the settings before it, then the command."""
        settings = _SERVICE.sub("", self.text)
        return [(_name(command), f"{settings}\nexec {command}") for command in _SERVICE.findall(self.text)]


def read_blocks(page: Path) -> list[Block]:
    """Return the blocks with a title, in their order."""
    return [_block(*match) for match in _BLOCK.findall(page.read_text())]


def _block(language: str, title: str, text: str) -> Block:
    hosts, _, path = title.partition(": ")
    return Block(language, tuple(hosts.split(", ")), path, text)


def _name(command: str) -> str:
    return "ray" if command.startswith("ray") else command.split()[2]


def on_hosts(blocks: Iterable[Block], names: Iterable[str]) -> list[Block]:
    """Return the blocks of some hosts only."""
    chosen = set(names)
    left = (block._replace(hosts=tuple(name for name in block.hosts if name in chosen)) for block in blocks)
    return [block for block in left if block.hosts]
