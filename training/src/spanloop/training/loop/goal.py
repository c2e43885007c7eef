"""A goal of the loop: ``METRIC OPERATOR NUMBER``, such as ``success >= 0.9``."""

import operator
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Self

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.settings.invalid_keys import nearest_key
from spanloop.foundation.settings.metric import Metric

_GOAL: Final = re.compile(r"\s*([A-Za-z_]+)\s*(>=|<=|>|<)\s*([+-]?(?:\d+\.?\d*|\.\d+))\s*(%?)\s*")
_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_NEXT: Final = 'Write METRIC OPERATOR NUMBER, such as --until "success >= 0.9"; operators: >=, <=, > and <.'


class Goal(NamedTuple):
    """What a figure of the champion's evaluation has to be."""

    metric: Metric
    comparison: str
    """``>=``, ``<=``, ``>`` or ``<``."""
    number: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a goal.

        Raises:
            ConfigurationError: The text is no goal, or its metric does not exist.
        """
        match = _GOAL.fullmatch(text)
        if match is None:
            raise ConfigurationError(f"The goal {text!r} cannot be read.", next_step=_NEXT)
        name, comparison, number, percent = match.groups()
        names = [str(metric) for metric in Metric]
        if name not in names:
            hint = nearest_key(name, names)
            raise ConfigurationError(
                f"The goal {text!r} has the metric {name}; there are {', '.join(names)}.", next_step=hint or _NEXT
            )
        return cls(Metric(name), comparison, float(number) / (100 if percent else 1))

    def is_reached(self, value: float) -> bool:
        """Whether a value is as the goal says."""
        return _OPERATORS[self.comparison](value, self.number)

    def __str__(self) -> str:
        return f"{self.metric} {self.comparison} {self.number:g}"
