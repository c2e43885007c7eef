"""Judges by name: a model of ``spanloop.toml``, an installed package's, or one of a module of the user's."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Self

from pydantic import PrivateAttr

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.model_client import ModelClient
from spanloop.foundation.plugins import Extension, ExtensionPoint, adapt_callable
from spanloop.foundation.settings import Model


class JudgeContext(NamedTuple):
    """Data that a judge may use besides a prompt."""

    data_dir: Path
    """The data directory, which holds the cache of answers."""
    models: Mapping[str, Model]
    """``[models]`` of spanloop.toml."""


class Judge(Extension):
    """A judge with its options: answers a prompt, such as a model behind an endpoint."""

    def bind(self, context: JudgeContext) -> Self:
        """Return the judge with what it needs of ``context``.

        Raises:
            ConfigurationError: Something that it needs is missing.
        """
        del context
        return self

    def ask(self, prompt: str) -> str:
        """Return the answer to ``prompt``: text that holds one JSON object."""
        raise NotImplementedError


class ModelJudge(Judge):
    """A model of `[models]` in `spanloop.toml`; its name there is enough."""

    model: str
    """Name of a model in `[models]` of spanloop.toml."""

    _client: ModelClient | None = PrivateAttr(default=None)

    def bind(self, context: JudgeContext) -> Self:
        """Return the judge with a client of its model.

        Raises:
            ConfigurationError: spanloop.toml has no such model.
        """
        if self.model not in context.models:
            known = ", ".join(sorted(context.models)) or "none"
            raise ConfigurationError(
                f"The judge's model {self.model!r} is not in spanloop.toml; [models] has: {known}.",
                next_step=f"Add a section [models.{self.model}] with url and model.",
            )
        self._client = ModelClient(context.models[self.model], context.data_dir)
        return self

    def ask(self, prompt: str) -> str:
        """Return the model's answer.

        Raises:
            ModelCallError: The model gives none.
        """
        if self._client is None:
            raise ConfigurationError("The judge was not bound to a data directory.")
        return self._client.ask(prompt)


def judge_of_callable(function: Callable[..., object], what: str) -> type[Judge]:
    """Return the class of a callable from a prompt to an answer."""
    return adapt_callable(function, Judge, method="ask", arguments=("prompt",), what=what)


JUDGE_POINT: Final = ExtensionPoint[Judge](
    what="judge",
    group="spanloop.judges",
    base=Judge,
    built_in={"model": "spanloop.pipeline.judges:ModelJudge"},
    adapt=judge_of_callable,
)
