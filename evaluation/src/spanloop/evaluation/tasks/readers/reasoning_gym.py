"""Generated tasks of the package ``reasoning-gym``: any of its datasets, by name, size and seed."""
# pyright: basic

import json
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, ClassVar

from pydantic import ConfigDict

from spanloop.foundation.errors import ConfigurationError

from .base import ReadContext, Reader, Record, unreadable
from .huggingface import EXTRA


class ReasoningGymReader(Reader):
    """Generated tasks."""

    model_config = ConfigDict(frozen=True, extra="allow")

    summary: ClassVar[str] = "Generated tasks (`reasoning-gym:leg_counting`); further options go to the generator."

    size: int = 100
    """Number of tasks."""
    seed: int = 0
    """The same seed gives the same tasks."""

    def read(self, source: str, context: ReadContext) -> Iterator[Record]:
        """Yield a record for each task: ``question``, ``answer`` and ``metadata``."""
        del context
        if find_spec("reasoning_gym") is None:
            raise ConfigurationError(
                f"Generating {source} needs reasoning-gym, which is not installed.", next_step=EXTRA
            )
        import reasoning_gym  # noqa: PLC0415 - a second, and only this reader needs it

        parameters = {name: _value(value) for name, value in (self.model_extra or {}).items()}
        try:
            dataset = reasoning_gym.create_dataset(source, size=self.size, seed=self.seed, **parameters)
        except (ValueError, TypeError, AssertionError) as error:
            raise unreadable(
                f"reasoning-gym:{source}", error, "Name a generator of reasoning-gym and its parameters."
            ) from error
        for number in range(self.size):
            item: dict[str, Any] = dataset[number]
            yield Record(f"{source} {number}", {name: value for name, value in item.items() if value is not None})


def _value(text: object) -> object:
    """The value of an option: JSON where it is JSON, else text."""
    try:
        return json.loads(str(text))
    except ValueError:
        return text
