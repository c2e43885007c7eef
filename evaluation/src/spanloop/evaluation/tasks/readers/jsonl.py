"""JSON lines: one object a line, ``.gz`` or not."""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Final, cast

from .base import ReadContext, Reader, Record, unreadable

_SHOWN: Final = 80


class JsonlReader(Reader):
    """JSON lines."""

    summary: ClassVar[str] = "A file of JSON objects, one a line (`tasks.jsonl`, `tasks.jsonl.gz`)."

    def read(self, source: str, context: ReadContext) -> Iterator[Record]:
        """Yield a record for each line that is not blank."""
        del context
        path = Path(source).expanduser()
        try:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    if line.strip():
                        yield Record(f"{source}:{number}", _object(line))
        except (OSError, EOFError, zlib.error) as error:
            why = getattr(error, "strerror", None) or error
            raise unreadable(source, why, "Name a file of JSON objects, one a line.") from error


def _object(line: bytes) -> dict[str, object] | str:
    text = line.decode("utf-8-sig", "replace").strip()
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"the line is not JSON ({error}): {text[:_SHOWN]!r}"
    if not isinstance(found, dict):
        return f"expected a JSON object, got {text[:_SHOWN]!r}"
    return cast("dict[str, object]", found)
