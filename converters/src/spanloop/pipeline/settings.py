"""How conversions run where nobody says so: by the environment, so that every process agrees."""

import os
from collections.abc import Mapping

from spanloop.converters import Options
from spanloop.converters.rewards import reward_functions
from spanloop.semconv.environment import REWARDS_ENV


def configured(environment: Mapping[str, str] = os.environ) -> Options:
    """The options that the environment asks for.

    Raises:
        ConfigurationError: When a reward function cannot be found.
    """
    references = [reference for reference in environment.get(REWARDS_ENV, "").split(",") if reference.strip()]
    return Options(reward_functions=reward_functions(references))
