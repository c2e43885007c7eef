"""Commands whose options are generated from the fields of a settings class, when the command runs or shows its help.

Importing the class, and pydantic with it, would slow every other command down.
"""

import inspect
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand
from typer.main import get_command

_META_KEY: Final = "spanloop.cli.generated_options"


class GeneratedOption(NamedTuple):
    """One option."""

    name: str
    """Of the field."""
    annotation: Any
    """``Annotated[type | None, typer.Option(…)]``."""


def given_options(context: typer.Context) -> dict[str, Any]:
    """Return the generated options that the user gave, by the names of their fields."""
    options: dict[str, Any] = context.meta[_META_KEY]
    return options


class GeneratedCommand(TyperCommand):
    """A command with further options, which :func:`given_options` returns."""

    def generate(self) -> Iterable[GeneratedOption]:
        """Return the options; called when the command runs or shows its help."""
        raise NotImplementedError

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the command's own parameters and the generated ones."""
        own = super().get_params(ctx)
        *parameters, help_option = own
        return [*parameters, *_parameters(self.generate()), help_option]

    def invoke(self, ctx: Any) -> Any:
        """Run the command; the generated options are not arguments of its function."""
        names = [option.name for option in self.generate()]
        values = {name: ctx.params.pop(name) for name in names}
        # What a variable says is not an option: its reader finds it, and a secret stays out of the process list.
        ctx.meta[_META_KEY] = {
            name: value
            for name, value in values.items()
            if value not in (None, [], ()) and ctx.get_parameter_source(name).name == "COMMANDLINE"
        }
        return super().invoke(ctx)


def _parameters(options: Iterable[GeneratedOption]) -> list[Any]:
    def settings(**_: Any) -> None: ...

    parameters = [
        inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option.annotation)
        for option in options
    ]
    vars(settings)["__signature__"] = inspect.Signature(parameters)
    settings.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    carrier = typer.Typer(add_completion=False)
    carrier.command(add_help_option=False)(settings)
    return list(get_command(carrier).params)
