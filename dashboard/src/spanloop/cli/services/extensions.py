"""``spanloop extensions``: list rules, judges, rewards, readers, graders, selections and pages with their options."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from spanloop.runtime.extension_points import KINDS, extension_point

from ..console import err, out

if TYPE_CHECKING:
    from spanloop.foundation.plugins import Listed, Option

_MOST_NAME: Final = 28


def extensions(
    kind: Annotated[
        str, typer.Argument(metavar="[KIND]", help=f"{', '.join(KINDS)}; all without one.", show_default=False)
    ] = "",
) -> None:
    """List what is built in and what installed packages offer, with the options of each.

    An option is given as NAME:OPTION=VALUE, or as --grader-option and --reader-option. What cannot be loaded has a line
    with the reason.

    Example: `spanloop extensions graders`
    """
    from spanloop.foundation.errors import ConfigurationError

    for name in [kind] if kind else KINDS:
        try:
            point = extension_point(name)
        except ConfigurationError as error:
            if kind:
                raise
            err.print(f"{name}: {error.what}", markup=False)
            continue
        out.print(f"{name} (entry points of the group {point.group})", markup=False, style="bold")
        lines = point.listed()
        for line in lines:
            _print(line)
        if not lines:
            out.print("  none", markup=False)


def _print(listed: "Listed") -> None:
    source = f" ({listed.source})" if listed.source != "built-in" else ""
    text = f"cannot be used: {listed.problem}" if listed.problem else listed.help
    out.print(f"  {listed.name}{source}: {text}", markup=False, style="red" if listed.problem else None)
    for option in listed.options:
        out.print(f"      {_assignment(option):{_MOST_NAME}} {option.help}".rstrip(), markup=False)


def _assignment(option: "Option") -> str:
    return f"{option.name} (required)" if option.is_required else f"{option.name}={option.default}"
