"""A task reader: tasks out of a folder of cards, one text file each."""

from collections.abc import Iterator
from pathlib import Path


def phone_book(source: str, pattern: str = "*.txt") -> Iterator[dict[str, str]]:
    """Read a folder: a file's name is the question, and its first line the number."""
    for path in sorted(Path(source).glob(pattern)):
        number = path.read_text(encoding="utf-8").partition("\n")[0]
        yield {"id": path.stem, "question": f"What is the number of {path.stem}?", "answer": number}
