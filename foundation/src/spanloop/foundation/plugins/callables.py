"""Make an extension's class of a plain callable: its signature says which options there are.

Invariant: a callable has the contract of a class. Its first parameters are those of the method that it stands for; each
further one is an option, with the annotation as its type and the default as its default.
"""

import inspect
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypeVar, cast

from pydantic import ConfigDict, PydanticSchemaGenerationError

from spanloop.foundation.errors import ConfigurationError

from .extension import Extension, sentence

E = TypeVar("E", bound=Extension)
_EMPTY: Final = inspect.Parameter.empty
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def adapt_callable(
    function: Callable[..., object],
    base: type[E],
    *,
    method: str,
    arguments: tuple[str, ...],
    what: str,
    attributes: Mapping[str, object] | None = None,
) -> type[E]:
    """Return a subclass of ``base`` whose method calls ``function``.

    Args:
        function: Called with the method's first arguments by position, and the options by keyword.
        base: The class of the kind.
        method: The method that ``function`` stands for.
        arguments: Names of the method's arguments that ``function`` gets.
        what: What it is called in errors, such as "grader 'near'".
        attributes: Further attributes of the class.

    Raises:
        ConfigurationError: It does not take these arguments, is a coroutine function, or an option cannot have its name
            or its type.
    """
    if inspect.iscoroutinefunction(function):
        raise ConfigurationError(
            f"{sentence(what)} is a coroutine function, expected a function.", next_step="Remove async."
        )
    parameters = _parameters(function, arguments, what)
    options = [each for each in parameters if each.kind is not inspect.Parameter.VAR_KEYWORD]

    def call(self: Extension, *given: object) -> object:
        return function(*given[: len(arguments)], **self.option_values())

    namespace: dict[str, object] = {
        **(attributes or {}),
        "__module__": getattr(function, "__module__", __name__),
        "__doc__": inspect.getdoc(function),
        "__annotations__": {each.name: _annotation(each, function, what) for each in options},
        **{each.name: each.default for each in options if each.default is not _EMPTY},
        method: call,
    }
    if len(options) < len(parameters):
        namespace["model_config"] = ConfigDict(extra="allow")
    reserved = [each.name for each in options if hasattr(base, each.name) or each.name.startswith("_")]
    if reserved:
        raise ConfigurationError(
            f"{sentence(what)} cannot have an option called {reserved[0]!r}.", next_step="Rename the parameter."
        )
    name = getattr(function, "__name__", type(function).__name__)
    try:
        return cast("type[E]", types.new_class(name, (base,), exec_body=lambda body: body.update(namespace)))
    except PydanticSchemaGenerationError as error:
        raise ConfigurationError(
            f"{sentence(what)}: the type of an option cannot be checked: {error.message.splitlines()[0]}",
            next_step="Annotate options with plain types, such as float or str.",
        ) from error


def _parameters(function: Callable[..., object], arguments: tuple[str, ...], what: str) -> list[inspect.Parameter]:
    """Return the parameters that are options; the last one may be ``**options``."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # written in C, without a signature: no options
        return []
    positional = [each for each in parameters if each.kind in _POSITIONAL]
    takes_any = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters)
    further = [each for each in parameters if each not in positional[: len(arguments)]]
    further = [each for each in further if each.kind is not inspect.Parameter.VAR_POSITIONAL]
    fixed = [each.name for each in further if each.kind is inspect.Parameter.POSITIONAL_ONLY and each.default is _EMPTY]
    if (len(positional) < len(arguments) and not takes_any) or fixed:
        raise ConfigurationError(
            f"{sentence(what)} takes ({', '.join(map(str, parameters))}), "
            f"expected ({', '.join(arguments)}), then options by name.",
            next_step="docs/reference/extension-points.md has the arguments of each kind.",
        )
    return [each for each in further if each.kind is not inspect.Parameter.POSITIONAL_ONLY]


def _annotation(parameter: inspect.Parameter, function: Callable[..., object], what: str) -> Any:
    annotation = parameter.annotation
    if annotation is _EMPTY:
        has_type = parameter.default is not _EMPTY and parameter.default is not None
        return cast("Any", type(parameter.default)) if has_type else str
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, getattr(function, "__globals__", {}), {"Annotated": Annotated})  # noqa: S307 - its own annotation
    except Exception as error:
        raise ConfigurationError(
            f"{sentence(what)}: the annotation {annotation!r} of option {parameter.name!r} cannot be resolved: "
            f"{error}.",
            next_step="Import the type at the top of the module.",
        ) from error
