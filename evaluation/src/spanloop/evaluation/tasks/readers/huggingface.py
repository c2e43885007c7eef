"""Hugging Face datasets: a folder, or a hub id, read as a stream."""
# pyright: basic

from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final, cast

from spanloop.foundation.errors import ConfigurationError

from .base import ReadContext, Reader, Record, unreadable

_SAVED: Final = ("state.json", "dataset_dict.json")
"""Files of a folder that ``save_to_disk`` wrote."""
EXTRA: Final = "pip install '/path/to/spanloop[tasks]'"


class HuggingFaceReader(Reader):
    """A Hugging Face dataset."""

    summary: ClassVar[str] = "A dataset's folder (`./gsm8k/`), or its hub id (`huggingface:openai/gsm8k`)."

    split: str = ""
    """The split, such as `test`; empty where there is only one."""
    config: str = ""
    """The configuration (subset), such as `main`."""
    revision: str = ""
    """Branch, tag or commit on the hub."""

    def read(self, source: str, context: ReadContext) -> Iterator[Record]:
        """Yield a record for each row; a null is a missing field."""
        del context
        rows = self._load(source)
        try:
            for number, row in enumerate(rows, start=1):
                fields = {name: value for name, value in row.items() if value is not None}
                yield Record(f"{source} {self.split} row {number}".replace("  ", " "), fields)
        except (OSError, ValueError, RuntimeError) as error:  # the stream broke off
            raise unreadable(source, error, "Run the same command again.") from error

    def _load(self, source: str) -> Iterable[Mapping[str, object]]:
        if find_spec("datasets") is None:
            raise ConfigurationError(
                f"Reading the dataset {source} needs datasets, which is not installed.", next_step=EXTRA
            )
        import datasets  # noqa: PLC0415 - seconds, and only this reader needs it
        from datasets.exceptions import DatasetsError  # noqa: PLC0415

        folder = Path(source).expanduser()
        next_step = "Name a dataset's folder or hub id; with --reader-option split=… and config=… where it has several."
        try:
            if any((folder / name).exists() for name in _SAVED):
                loaded: Any = datasets.load_from_disk(str(folder))
            else:
                loaded = datasets.load_dataset(
                    source,
                    self.config or None,
                    split=self.split or None,
                    revision=self.revision or None,
                    streaming=True,
                )
        except (OSError, ValueError, RuntimeError, DatasetsError) as error:
            raise unreadable(source, error, next_step) from error
        if not isinstance(loaded, dict):
            return cast("Iterable[Mapping[str, object]]", loaded)
        split = self.split or (next(iter(loaded)) if len(loaded) == 1 else "")
        if split not in loaded:
            got = f"no split {self.split!r}" if self.split else "several splits"
            choices = ", ".join(map(str, loaded))
            raise unreadable(source, f"it has {got}", f"Name one: --reader-option split=… ({choices}).")
        return cast("Iterable[Mapping[str, object]]", loaded[split])
