"""The options of ``spanloop train`` that set a job's settings, generated from :class:`JobSpec`.

They are made when the command runs or shows its help: importing pydantic would slow every other command down.
"""

import inspect
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand
from typer.main import get_command

if TYPE_CHECKING:
    from spanloop.training.spec_fields import SpecField

_META_KEY: Final = "spanloop.cli.job_settings"


def chosen_settings(context: typer.Context) -> dict[str, Any]:
    """Return the settings that the user gave as options, by the names of the spec's fields."""
    settings: dict[str, Any] = context.meta[_META_KEY]
    return settings


class SpecCommand(TyperCommand):
    """A command with one option for each field of :class:`JobSpec`; :func:`chosen_settings` has their values."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the command's own parameters and the generated ones."""
        own = super().get_params(ctx)
        *parameters, help_option = own
        return [*parameters, *_options(), help_option]

    def invoke(self, ctx: Any) -> Any:
        """Run the command; the generated options are not arguments of its function."""
        names = [option.name for option in _options()]
        values = {name: ctx.params.pop(name) for name in names}
        ctx.meta[_META_KEY] = {name: value for name, value in values.items() if value not in (None, [], ())}
        return super().invoke(ctx)


def _options() -> list[Any]:
    from spanloop.training.spec_fields import spec_fields

    def settings(**_: Any) -> None: ...

    parameters = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(field))
        for field in spec_fields()
    ]
    vars(settings)["__signature__"] = inspect.Signature(parameters)
    settings.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    carrier = typer.Typer(add_completion=False)
    carrier.command(add_help_option=False)(settings)
    return list(get_command(carrier).params)


def _annotation(field: "SpecField") -> Any:
    # as text where none is a value too: the spec validates it
    value_type: Any = str if field.is_optional else field.value_type
    if field.is_list:
        value_type = list[value_type]
    flag = f"--{field.name.replace('_', '-')}"
    names = [f"{flag}/--no-{flag[2:]}"] if value_type is bool else [flag]
    option = typer.Option(
        *names,
        help=field.help.replace("``", "`") + (" May be given several times." if field.is_list else ""),
        show_default=False if field.is_required else field.default_text,
        rich_help_panel=str(field.setting.panel),
        metavar=_metavar(field) if field.is_optional else None,
    )
    return Annotated[value_type | None, option]


def _metavar(field: "SpecField") -> str:
    from spanloop.training.spec_fields import NONE_TEXT

    name = "TIME" if field.value_type is datetime else field.value_type.__name__.upper()
    return f"{name}|{NONE_TEXT}"
