"""Values in Hydra's override syntax."""

import re
from pathlib import Path
from typing import Any, cast


def quoted(path: Path | str) -> str:
    """Return ``path`` as a Hydra value in single quotes, which protect spaces, commas and equal signs.

    In Hydra a backslash is literal, except in a run of backslashes before a quote.
    """
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", str(path))
    escaped = re.sub(r"(\\+)$", r"\1\1", escaped)
    return f"'{escaped}'"


def hydra_text(value: object) -> str:
    """Return a value of TOML (text, number, boolean, list) in Hydra's syntax."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{','.join(hydra_text(item) for item in cast('tuple[Any, ...]', value))}]"
    return repr(value) if isinstance(value, int | float) else quoted(str(value))
