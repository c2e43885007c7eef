"""What the queue reads of a job's specification, which it stores as JSON text.

Invariant: this package knows no class of specifications. Whoever opens the queue passes `ParseSpec`, the function that
reads the stored text.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar


class QueuedSpec(Protocol):
    """The settings of a job that decide when, where and how often it starts."""

    @property
    def kind(self) -> str:
        """The recipe; the job's id begins with it."""
        ...

    @property
    def steps(self) -> int:
        """Steps in total, until the job's process reports them."""
        ...

    @property
    def uses_gpu(self) -> bool:
        """Whether the job may compute on a GPU."""
        ...

    @property
    def max_attempts(self) -> int:
        """Maximum number of starts."""
        ...

    @property
    def max_runtime_minutes(self) -> float | None:
        """Longest run time of all attempts together; None is no limit."""
        ...

    def model_dump_json(self) -> str:
        """Return the text that is stored."""
        ...


SpecT = TypeVar("SpecT", bound=QueuedSpec)
SpecT_co = TypeVar("SpecT_co", bound=QueuedSpec, covariant=True)
ParseSpec: TypeAlias = Callable[[str], SpecT]
"""Returns the specification in a stored text; raises ``ValueError`` when another version of spanloop wrote it."""
