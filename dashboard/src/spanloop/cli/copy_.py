"""``spanloop copy``: copy the store into another ClickHouse."""

from typing import TYPE_CHECKING, Annotated

import typer

from spanloop.semconv.environment import CLICKHOUSE_URL_ENV

from .console import err, out, print_table, progress_bar
from .options import DataDirOption, data_directory

if TYPE_CHECKING:
    from spanloop.administration.copying import CopiedTable


def copy(
    to: Annotated[
        str,
        typer.Option(
            "--to",
            envvar="SPANLOOP_COPY_URL",
            metavar="URL",
            help="http(s)://user:password@host:port/database; a missing database is created.",
            show_default=False,
        ),
    ],
    data_dir: DataDirOption = None,
) -> None:
    """Copy the whole store into another ClickHouse, to continue there.

    Sends only rows that the target does not have, and changes nothing else in it. Run it again after an interruption,
    or to send newer rows. Put the URL into SPANLOOP_COPY_URL to keep its password out of the shell's history.

    Example: `spanloop copy --to https://me@clickhouse.example.com:8443/spanloop`
    """
    from spanloop.administration.copying import check_copy, copy_store
    from spanloop.store import Store, connect
    from spanloop.store.client import Address

    address = Address.parse(to)
    directory = data_directory(data_dir)
    with connect(directory, start=True) as source, Store.open(address) as target:
        with progress_bar() as bar:
            task = bar.add_task("starting", total=None, note="rows")

            def progress(table: str, done: int, total: int) -> None:
                bar.update(task, description=table, completed=done, total=max(1, total))

            copied = copy_store(source, target, on_progress=progress)
        _print(copied)
        check_copy(copied, target)
        out.print(f"{sum(table.sent for table in copied):,} rows were sent to {target.url}", markup=False)
    err.print(f"to continue there: stop spanloop, and start it with {CLICKHOUSE_URL_ENV} set to that address")


def _print(copied: "list[CopiedTable]") -> None:
    rows = [(table.name, f"{table.source_rows:,}", f"{table.target_rows:,}", f"{table.sent:,}") for table in copied]
    print_table(("table", "rows here", "rows there", "sent"), rows, numbers=("rows here", "rows there", "sent"))
