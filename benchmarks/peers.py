"""The environment that the peers of the benchmarks run in: ``.venv-peers``, apart from ours and from their pins.

    python benchmarks/peers.py          makes it (once, from PyPI), or says that it is there

Whoever measures beside a peer starts ``python()`` with a script of its own, and says how to make the environment where
that is None.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parent.parent / ".venv-peers"
PACKAGES: Final = ("agentlightning==0.3.0", "rotel==0.0.1a15")
HOW_TO: Final = "no peer here: `python benchmarks/peers.py` makes its environment"


def python() -> Path | None:
    """The interpreter of the finished environment; None where there is none."""
    found = FOLDER / "bin" / "python"
    is_whole = _mark().exists() and _mark().read_text().split() == list(PACKAGES)
    return found if is_whole and found.exists() else None


def _mark() -> Path:
    return FOLDER / "installed.txt"


def main() -> None:
    """Make the environment, whole or not at all."""
    if python() is None:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(FOLDER)], check=True)
        subprocess.run([str(FOLDER / "bin" / "python"), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        _mark().write_text("\n".join(PACKAGES) + "\n")
    print(f"peers: {', '.join(PACKAGES)} in {FOLDER.name}")


if __name__ == "__main__":
    main()
