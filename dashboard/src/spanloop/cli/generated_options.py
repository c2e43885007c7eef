"""Commands whose options are generated from the fields of a settings class, when the command runs or shows its help.

Importing the class, and pydantic with it, would slow every other command down.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, get_args, get_origin

import typer
from typer.core import TyperCommand
from typer.main import get_command

if TYPE_CHECKING:
    from spanloop.foundation.settings.section import Section

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


def section_options(
    section: "type[Section]",
    *,
    without: Collection[str] = (),
    defaults: Mapping[str, object] = MappingProxyType({}),
    variable: Callable[[str], str] | None = None,
) -> Iterator[GeneratedOption]:
    """Yield an option for each field of a section of ``spanloop.toml``.

    Args:
        section: Its class.
        without: Fields that get no option.
        defaults: Shown in place of those of the class.
        variable: Returns the environment variable of a field; None for options without one.
    """
    for name, field in section.model_fields.items():
        if name in without:
            continue
        value_type = _value_type(field.annotation)
        meaning = f"{field.description} May be given several times." if value_type == list[str] else field.description
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        option = typer.Option(
            section.option(name),
            envvar=variable(name) if variable else None,
            help=" ".join(str(meaning).replace("``", "`").split()),
            metavar="NAME=VALUE" if value_type == list[str] else None,
            show_default=_default_text(defaults.get(name, default)),
        )
        yield GeneratedOption(name, Annotated[value_type | None, option])


def _value_type(annotation: Any) -> Any:
    """Return the type of an option's text: that of the field, without pydantic's checks and without None."""
    if get_origin(annotation) is dict:
        return list[str]
    plain = next((each for each in get_args(annotation) if each is not type(None)), annotation)
    plain = get_args(plain)[0] if get_origin(plain) is Annotated else plain
    return plain if plain in {bool, int, float, Path} else str


def _default_text(default: object) -> str | bool:
    return False if default is None or default is False or default == {} else str(default) or False


class GeneratedCommand(TyperCommand):
    """A command with further options, which :func:`given_options` returns."""

    def generate(self) -> Iterable[GeneratedOption]:
        """Return the options; called when the command runs or shows its help."""
        raise NotImplementedError

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the command's own parameters and the generated ones."""
        own = super().get_params(ctx)
        *parameters, help_option = own
        return [*parameters, *self._generated, help_option]

    def invoke(self, ctx: Any) -> Any:
        """Run the command; the generated options are not arguments of its function."""
        values = {parameter.name: ctx.params.pop(parameter.name) for parameter in self._generated}
        # What a variable says is not an option: its reader finds it, and a secret stays out of the process list.
        ctx.meta[_META_KEY] = {
            name: value
            for name, value in values.items()
            if value not in (None, [], ()) and ctx.get_parameter_source(name).name == "COMMANDLINE"
        }
        return super().invoke(ctx)

    @cached_property
    def _generated(self) -> list[Any]:
        """The parameters of the generated options, for which typer asks several times in one call."""
        return _parameters(self.generate())


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
