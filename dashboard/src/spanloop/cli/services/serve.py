"""``spanloop serve ROLE``: run one role of a spanloop in this process, until SIGTERM."""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args, get_origin

import typer

from ..generated_options import GeneratedCommand, GeneratedOption, given_options
from ..options import ConfigOption, DataDirOption, LogFormatOption, data_directory, use_log_format

if TYPE_CHECKING:
    from collections.abc import Callable

    from spanloop.foundation.settings.serve import Role

app = typer.Typer(
    help="Run one role alone, for roles on several hosts. `spanloop up` runs all of them on this one.\n\n"
    "An option wins over its environment variable, and that over `[serve.ROLE]` in `spanloop.toml`. The roles find "
    "one another by `[services]` in the same file, or by `SPANLOOP_CLICKHOUSE_URL`, `SPANLOOP_CONTROL_URL`, "
    "`SPANLOOP_COLLECTOR_URL`, `SPANLOOP_GATEWAY_URL`, `SPANLOOP_DASHBOARD_URL`, `SPANLOOP_KEY` and "
    "`SPANLOOP_SHARED_DIR`. `spanloop doctor --config spanloop.toml` checks each.",
    no_args_is_help=True,
)

MODULES: Final = {
    "collector": "spanloop.collector",
    "pipeline": "spanloop.pipeline",
    "scheduler": "spanloop.training.run.scheduler",
    "runner": "spanloop.training.run.runner",
    "gateway": "spanloop.gateway",
    "dashboard": "spanloop.dashboard",
    "clickhouse": "spanloop.embedded_clickhouse.server",
}
_DEFAULTS: Final[Mapping[str, Mapping[str, object]]] = {"scheduler": {"slots": 0}, "clickhouse": {"port": 8123}}
"""Options that differ from those of the module, which ``spanloop up`` uses."""


class _RoleCommand(GeneratedCommand):
    """A command with one option for each field of the role's section."""

    def generate(self) -> Iterator[GeneratedOption]:
        """Yield an option for each field."""
        from spanloop.foundation.settings.serve import role_variable

        role = str(self.name)
        for name, field in _section(role).model_fields.items():
            value_type = _plain(next(each for each in get_args(field.annotation) if each is not type(None)))
            option = typer.Option(
                f"--{name.replace('_', '-')}",
                envvar=role_variable(role, name),
                help=" ".join(str(field.description).replace("``", "`").split()),
                show_default=False,
            )
            yield GeneratedOption(name, Annotated[value_type | None, option])


def role_command(role: str, data_dir: Path, options: Mapping[str, Any], section: "Role") -> list[str]:
    """Return the command line of a role's process.

    Args:
        role: Its name.
        data_dir: Its data directory.
        options: What the command line and the environment say.
        section: What ``spanloop.toml`` says.
    """
    defaults = {name: value for name, value in _DEFAULTS.get(role, {}).items() if getattr(section, name) is None}
    settings = type(section).model_validate(section.model_dump() | defaults | dict(options))
    return [sys.executable, "-m", MODULES[role], "--data-dir", str(data_dir), *settings.arguments()]


def _plain(value_type: Any) -> Any:
    """Return the type that ``Annotated`` wraps, without pydantic's checks: a path of an option starts here."""
    return get_args(value_type)[0] if get_origin(value_type) is Annotated else value_type


def _section(role: str) -> "type[Role]":
    from spanloop.foundation.settings import Serve

    annotation: Any = Serve.model_fields[role].annotation
    return annotation  # type: ignore[no-any-return]


def _add(role: str, summary: str) -> None:
    def serve(
        context: typer.Context,
        data_dir: DataDirOption = None,
        config: ConfigOption = None,
        log_format: LogFormatOption = None,
    ) -> None:
        from spanloop.foundation.settings import load_configuration

        use_log_format(log_format)
        directory = data_directory(data_dir, config)
        section = getattr(load_configuration(directory.path).serve, role)
        command = role_command(role, directory.path, given_options(context), section)
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
    "clickhouse",
    "Run the embedded ClickHouse where other hosts reach it. The password of its user spanloop is in "
    "run/clickhouse.secret of the data directory.",
)
