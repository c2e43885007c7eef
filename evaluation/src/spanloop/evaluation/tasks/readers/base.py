"""What a reader is: settings, and an iterator over the records of a source.

Invariant: a reader reads lazily, so that a source may be larger than memory, and yields a record for every line, row
or item that it meets: the fields, or the text that says why there are none.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.plugins import Extension
from spanloop.store import Store


class Record(NamedTuple):
    """One item of a source."""

    place: str
    """Where it stands, for messages: ``tasks.jsonl:17``."""
    fields: Mapping[str, object] | str
    """Its fields; or a text that says why it cannot be read."""
    ends_source: bool = False
    """Whether the reader failed here, so that the rest of the source is not read."""


class ReadContext(NamedTuple):
    """What a reader may use besides its source."""

    store: Store | None = None
    """Open; None where there is none."""


class Reader(Extension):
    """A task reader with its options.

    Its ``summary`` says what it reads, and the form of its source.
    """

    def read(self, source: str, context: ReadContext) -> Iterable[Record | Mapping[str, object]]:
        """Yield the records of ``source``: each with its place, or as a mapping of fields.

        Raises:
            ConfigurationError: The source does not exist or cannot be read at all.
        """
        raise NotImplementedError


def unreadable(source: str, why: object, next_step: str) -> ConfigurationError:
    """Return the error for a source that cannot be read at all."""
    text = " ".join(str(why).split()).rstrip(".")
    return ConfigurationError(f"The tasks {source} cannot be read: {text}.", next_step=next_step)
