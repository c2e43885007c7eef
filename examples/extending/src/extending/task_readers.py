"""A task reader: tasks out of a folder of cards, one text file each."""

from collections.abc import Iterator, Mapping
from pathlib import Path


def phone_book(source: str, options: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield a task for each file: the name is the question, and the first line the number."""
    for path in sorted(Path(source).glob(options.get("pattern", "*.txt"))):
        number = path.read_text(encoding="utf-8").partition("\n")[0]
        yield {"id": path.stem, "question": f"What is the number of {path.stem}?", "answer": number}
