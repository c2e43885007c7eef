"""``spanloop doctor``: check this machine and show the command that fixes each problem."""

from typing import Annotated

import typer
from rich.markup import escape
from rich.status import Status

from spanloop.runtime.check import Check
from spanloop.runtime.environment_checks import all_checks

from ..console import err, markup_text, out
from ..options import ConfigOption, DataDirOption, configured_directory


def doctor(
    data_dir: DataDirOption = None,
    fix: Annotated[bool, typer.Option("--fix", help="Create the serving environment if it is missing.")] = False,
    app: Annotated[bool, typer.Option("--app", help="Show what traces an app of this environment instead.")] = False,
    config: ConfigOption = None,
) -> None:
    """Check extras, serving environment, device, memory, data directory, disk and ports; show how to fix problems.

    Checks also the address, key, version and clock of each role that `spanloop.toml` or a variable names.

    Exit code 1 when a required part is missing.

    Example: `spanloop doctor --fix`
    """
    if app:
        from spanloop.instrumentation.loading.environment_advice import run

        run(installs=False)
        return
    directory = configured_directory(data_dir, config).path
    checks = all_checks(directory)
    if fix:
        for check in checks:
            if not check.ok and check.repair is not None:
                with err.status("") as spinner:
                    check.repair(lambda title, line: _show(spinner, title, line))
        checks = all_checks(directory)
    for check in checks:
        _print(check)
    if any(check.needed and not check.ok for check in checks):
        raise typer.Exit(1)


def _show(spinner: Status, title: str, line: str) -> None:
    spinner.update(markup_text(escape(title) + (f"\n  [dim]{escape(line)}[/dim]" if line else "")))


def _print(check: Check) -> None:
    mark = "[green]✓[/green]" if check.ok else "[red]✗[/red]" if check.needed else "[yellow]-[/yellow]"
    out.print(f"{mark} {escape(check.name)}: {escape(check.detail)}")
    if not check.ok and check.fix:
        out.print(f"    fix: [bold]{escape(check.fix)}[/bold]")
