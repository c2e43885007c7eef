"""The options of ``spanloop train`` that set a job's settings, generated from :class:`JobSpec`."""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..generated_options import GeneratedCommand, GeneratedOption

if TYPE_CHECKING:
    from spanloop.training.spec.fields import SpecField


class SpecCommand(GeneratedCommand):
    """A command with one option for each field of :class:`JobSpec`."""

    def generate(self) -> Iterator[GeneratedOption]:
        """Yield an option for each field."""
        from spanloop.training.spec.fields import spec_fields

        for field in spec_fields():
            yield GeneratedOption(field.name, _annotation(field))


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
    from spanloop.training.spec.fields import NONE_TEXT

    name = "TIME" if field.value_type is datetime else field.value_type.__name__.upper()
    return f"{name}|{NONE_TEXT}"
