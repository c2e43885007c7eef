"""``spanloop serve ROLE``: run one role of a spanloop in this process, until SIGTERM."""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..generated_options import GeneratedCommand, GeneratedOption, given_options, section_options
from ..options import ConfigOption, DataDirOption, LogFormatOption, data_directory, use_log_format

if TYPE_CHECKING:
    from collections.abc import Callable

    from spanloop.foundation.settings.roles import RoleSettings

app = typer.Typer(
    help="Run one role alone, for roles on several hosts. `spanloop up` runs all of them on this one.\n\n"
    "An option wins over its environment variable, and that over `[serve.ROLE]` in `spanloop.toml`. The roles find "
    "one another by `[services]` in the same file, or by `SPANLOOP_CLICKHOUSE_URL`, `SPANLOOP_CONTROL_URL`, "
    "`SPANLOOP_COLLECTOR_URL`, `SPANLOOP_GATEWAY_URL`, `SPANLOOP_DASHBOARD_URL`, `SPANLOOP_KEY` and "
    "`SPANLOOP_SHARED_DIR`. `spanloop doctor --config spanloop.toml` checks each.",
    no_args_is_help=True,
)


class _RoleCommand(GeneratedCommand):
    """A command with one option for each field of the role's settings."""

    def generate(self) -> Iterator[GeneratedOption]:
        """Return an option for each field."""
        from spanloop.foundation.settings.roles import ROLES

        role = ROLES[str(self.name)]
        return section_options(role, defaults=role.alone, variable=role.variable)


def role_command(role: "type[RoleSettings]", data_dir: Path, given: Mapping[str, Any]) -> list[str]:
    """Return the command line of a role's process: its other settings it reads itself.

    Args:
        role: The class of its settings.
        data_dir: Its data directory.
        given: The options of the command line, by field.
    """
    from spanloop.foundation.settings import load_configuration
    from spanloop.foundation.settings.sources import resolve

    origins = resolve(role, load_configuration(data_dir), given).origins
    options = {name: value for name, value in role.alone.items() if name not in origins} | dict(given)
    arguments = [
        role.option(name) if value is True else f"{role.option(name)}={value}"
        for name, value in options.items()
        if value is not False
    ]
    return [sys.executable, "-m", role.module, "--data-dir", str(data_dir), *arguments]


def _add(role: str, summary: str) -> None:
    def serve(
        context: typer.Context,
        data_dir: DataDirOption = None,
        config: ConfigOption = None,
        log_format: LogFormatOption = None,
    ) -> None:
        from spanloop.foundation.settings.roles import ROLES

        use_log_format(log_format)
        directory = data_directory(data_dir, config)
        command = role_command(ROLES[role], directory.path, given_options(context))
        sys.stdout.flush()
        os.execv(command[0], command)  # noqa: S606 - the role gets this process: its id, signals and output

    serve.__doc__ = f"{summary}\n\nExample: `spanloop serve {role} --config spanloop.toml`"
    register: Callable[[Callable[..., None]], object] = app.command(role, cls=_RoleCommand)
    register(serve)


_add("collector", "Receive spans and scores, keep them on disk, and write them to ClickHouse. Several may run.")
_add(
    "pipeline",
    "Convert spans into episodes and transitions. One converts; a second one waits and takes over when it dies.",
)
_add(
    "scheduler",
    "Start scheduled jobs, recover abandoned ones and watch canaries. One is active; a second one waits. "
    "Jobs run on `spanloop serve runner`.",
)
_add("runner", "Run training jobs. Several may run, on several hosts.")
_add("gateway", "Serve a model by the OpenAI-compatible API, with vLLM behind it.")
_add("dashboard", "Serve the web pages.")
_add(
    "mcp",
    "Answer an assistant's questions about episodes, failures and scores by the Model Context Protocol: over HTTP, or "
    "with --stdio for an assistant that starts it. It only reads.",
)
_add(
    "clickhouse",
    "Run the embedded ClickHouse where other hosts reach it. The password of its user spanloop is in "
    "run/clickhouse.secret of the data directory.",
)
