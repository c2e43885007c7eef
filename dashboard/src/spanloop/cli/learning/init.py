"""``spanloop init``: write an ``app.toml`` for a service that sends spans."""

from pathlib import Path
from typing import Annotated

import typer

from ..console import err, out
from ..options import DataDirOption, data_directory


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("app.toml"),
    service: Annotated[
        str, typer.Option(help="Whose stored requests become the tasks.", show_default="the only service")
    ] = "",
    data_dir: DataDirOption = None,
) -> None:
    """Write a commented app.toml for a service that sends spans, with tasks from its stored requests.

    Model, tools and tasks are filled in. What spans do not tell, such as the command and the reward, is marked and
    explained. `spanloop loop` runs the file.

    Example: `spanloop init app.toml --service shop`
    """
    from spanloop.store import connect
    from spanloop.training.loop.app_file import UNKNOWN
    from spanloop.training.loop.init_file import write_app_file

    directory = data_directory(data_dir)
    with connect(directory, start=True) as store:
        written = write_app_file(directory, store, file, service=service)
    for path in (written.app, written.train, written.test):
        out.print(str(path), markup=False)
    if written.unknown:
        err.print(f'replace each "{UNKNOWN}" in {written.app}: {", ".join(written.unknown)}', markup=False)
    err.print(f"then: spanloop loop {written.app} --dry-run", markup=False)
