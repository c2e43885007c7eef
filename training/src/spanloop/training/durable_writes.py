"""Replace small files durably."""

import os
from pathlib import Path


def write_durably(path: Path, text: str) -> None:
    """Replace a file durably: a crash leaves the old content or the new one."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
