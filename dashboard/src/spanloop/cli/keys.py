"""``spanloop keys``: who may send to a collector that listens beyond this machine."""

from typing import Annotated

import typer

from .console import err, out, print_table
from .options import DataDirOption, data_directory

app = typer.Typer(help="Make, list and revoke API keys.", no_args_is_help=True)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What to call it.")],
    scope: Annotated[
        list[str], typer.Option(help="ingest, score, read, train or admin; may be given several times.")
    ] = ["ingest"],  # noqa: B006 - typer reads it and never changes it
    data_dir: DataDirOption = None,
) -> None:
    """Make a key and print it, once. From the first key on, the collector wants one with every request.

    Example: `spanloop keys create laptop --scope ingest --scope score`
    """
    from spanloop.authentication.api_keys import KeyRing, Scope
    from spanloop.semconv.errors import ConfigurationError

    try:
        scopes = [Scope(each) for each in scope]
    except ValueError as error:
        raise ConfigurationError(f"{error}.", next_step=f"A scope is one of {', '.join(Scope)}.") from error
    ring = KeyRing(data_directory(data_dir))
    is_first = not ring.is_required
    made = ring.create(name, scopes)
    out.print(made.secret, markup=False)
    err.print("this is the only time that it is shown; an app sends it with:")
    err.print(f"  OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20{made.secret}", markup=False)
    if is_first:
        err.print("from now on the collector of this data directory wants a key with every request")


@app.command("list")
def list_keys(data_dir: DataDirOption = None) -> None:
    """Show all keys: their ids, names and scopes, never the keys themselves.

    Example: `spanloop keys list`
    """
    from spanloop.authentication.api_keys import KeyRing

    found = KeyRing(data_directory(data_dir)).list()
    if not found:
        err.print("no keys: whoever reaches the collector may send; it listens on this machine only")
        return
    print_table(
        ("key", "name", "scopes", "made", "revoked"),
        ((key.id, key.name, ", ".join(key.scopes), key.created_at, key.revoked_at) for key in found),
    )


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="A key's id or name, as listed.")],
    data_dir: DataDirOption = None,
) -> None:
    """Make a key worthless, at once.

    Example: `spanloop keys revoke laptop`
    """
    from spanloop.authentication.api_keys import KeyRing

    revoked = KeyRing(data_directory(data_dir)).revoke(key)
    err.print(f"{revoked.id} ({revoked.name}) is revoked", markup=False)
