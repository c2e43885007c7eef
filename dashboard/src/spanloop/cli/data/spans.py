"""``spanloop spans``: what became of stored spans."""

from typing import Annotated

import typer

from ..console import err, print_table
from ..options import DataDirOption, data_directory

app = typer.Typer(help="Find out what became of stored spans.", no_args_is_help=True)


@app.callback()
def _spans() -> None: ...


@app.command()
def versions(
    span: Annotated[str, typer.Argument(metavar="TRACE[/SPAN]", help="A trace id, or trace id, slash, span id.")],
    data_dir: DataDirOption = None,
) -> None:
    """List the versions that learned from a trace or span: those whose job trained on it, and their descendants.

    Example: `spanloop spans versions 4bf92f3577b34da6a3ce929d0e0e4736`
    """
    from spanloop.store import connect
    from spanloop.training.models.lineage import versions_of_span
    from spanloop.training.models.registry import Registry

    trace_id, _, span_id = span.partition("/")
    directory = data_directory(data_dir)
    with connect(directory, start=True) as store:
        learned = versions_of_span(store, Registry(directory), trace_id, span_id)
    if not learned:
        err.print(f"no version learned from {span}", markup=False)
        return
    print_table(
        ("version", "through", "job", "model calls", "times trained"),
        ((each.reference, each.through, each.job_id, str(each.spans), str(each.times)) for each in learned),
        numbers=("model calls", "times trained"),
    )
