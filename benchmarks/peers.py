"""Environments of benchmarks, apart from ours and from its pins; ``.venv-peers`` is the one of the peers.

    python benchmarks/peers.py          makes it (once, from PyPI), or says that it is there

Whoever measures beside a peer starts ``python()`` with a script of its own, and says how to make the environment where
that is None.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
HOW_TO: Final = "no peer here: `python benchmarks/peers.py` makes its environment"


class Environment(NamedTuple):
    """A virtual environment in the repository's folder."""

    name: str
    """Of its folder; git ignores it."""
    packages: tuple[str, ...]
    """Arguments of ``pip install``."""

    @property
    def folder(self) -> Path:
        """Where it is, or will be."""
        return ROOT / self.name

    def python(self) -> Path | None:
        """The interpreter of the finished environment; None where there is none."""
        found = self.folder / "bin" / "python"
        is_whole = self._mark.exists() and self._mark.read_text().splitlines() == list(self.packages)
        return found if is_whole and found.exists() else None

    @property
    def _mark(self) -> Path:
        return self.folder / "installed.txt"

    def make(self) -> Path:
        """Make it, whole or not at all, unless it is there; its interpreter."""
        if found := self.python():
            return found
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(self.folder)], check=True)
        python = self.folder / "bin" / "python"
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *self.packages], check=True)
        self._mark.write_text("\n".join(self.packages) + "\n")
        return python


PEERS: Final = Environment(".venv-peers", ("agentlightning==0.3.0", "rotel==0.0.1a15"))
FOLDER: Final = PEERS.folder
python: Final = PEERS.python


def main() -> None:
    """Make the peers' environment."""
    PEERS.make()
    print(f"peers: {', '.join(PEERS.packages)} in {FOLDER.name}")


if __name__ == "__main__":
    main()
