"""How conversions run where nobody says so: by the environment, so that every process agrees."""

import os
from collections.abc import Mapping
from typing import Final

from spanloop.converters import Options
from spanloop.converters.rewards import reward_functions
from spanloop.semconv.environment import CONVERT_MEMORY_ENV, REWARDS_ENV
from spanloop.semconv.errors import ConfigurationError

MEMORY_MIB: Final = 2_048


def configured(environment: Mapping[str, str] = os.environ) -> Options:
    """The options that the environment asks for.

    Raises:
        ConfigurationError: When a reward function cannot be found.
    """
    references = [reference for reference in environment.get(REWARDS_ENV, "").split(",") if reference.strip()]
    return Options(reward_functions=reward_functions(references))


def memory_bytes(environment: Mapping[str, str] = os.environ) -> int:
    """About what a conversion may need, as the environment says.

    Raises:
        ConfigurationError: When it says no number.
    """
    said = environment.get(CONVERT_MEMORY_ENV, "") or str(MEMORY_MIB)
    if not said.isdecimal() or int(said) < 1:
        raise ConfigurationError(
            f"{CONVERT_MEMORY_ENV} is {said!r}, expected a number of MiB.",
            next_step=f"Set it to {MEMORY_MIB}, or unset it.",
        )
    return int(said) << 20
