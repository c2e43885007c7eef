"""Every kind of extension: one table for listings, the documentation and tests."""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from spanloop.foundation.errors import ConfigurationError

if TYPE_CHECKING:
    from spanloop.foundation.plugins import ExtensionPoint

KINDS: Final[Mapping[str, str]] = {
    "rules": "spanloop.converters.attribution.loading:RULE_POINT",
    "judges": "spanloop.pipeline.judges:JUDGE_POINT",
    "rewards": "spanloop.converters.rewards.loading:REWARD_POINT",
    "readers": "spanloop.evaluation.tasks.readers:READER_POINT",
    "graders": "spanloop.evaluation.graders.loading:GRADER_POINT",
    "environments": "spanloop.evaluation.environments:ENVIRONMENT_POINT",
    "recipes": "spanloop.training.recipes.registry:RECIPE_POINT",
    "selections": "spanloop.training.dataset.selector:SELECTOR_POINT",
    "pages": "spanloop.dashboard.page:PAGE_POINT",
}
"""Kind → ``module:name`` of its `ExtensionPoint`, imported when it is used."""


def extension_point(kind: str) -> "ExtensionPoint[Any]":
    """Return the extension point of a kind.

    Raises:
        ConfigurationError: There is no such kind, or it needs an extra that is not installed.
    """
    if kind not in KINDS:
        raise ConfigurationError(f"There is no kind {kind!r} of extensions.", next_step=f"Known: {', '.join(KINDS)}.")
    module_name, _, name = KINDS[kind].partition(":")
    try:
        point: ExtensionPoint[Any] = getattr(importlib.import_module(module_name), name)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"Listing {kind} needs {error.name}, which is not installed.",
            next_step="pip install '/path/to/spanloop[all]'",
        ) from error
    return point
