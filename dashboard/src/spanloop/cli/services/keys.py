"""``spanloop keys``: create, list and revoke API keys."""

from typing import Annotated

import typer

from ..console import err, out, print_table
from ..options import DataDirOption, data_directory

app = typer.Typer(help="Create, list and revoke API keys.", no_args_is_help=True)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="A name for the key.")],
    scope: Annotated[
        list[str], typer.Option(help="ingest, score, serve, read, ask, train or admin; may be given several times.")
    ] = ["ingest"],  # noqa: B006 - typer does not change it
    service: Annotated[
        list[str] | None,
        typer.Option(help="Limit the scope ask to the rows of this service; may be given several times."),
    ] = None,
    data_dir: DataDirOption = None,
) -> None:
    """Create an API key and print it once. After the first key, collector and gateway require one with every request.

    Example: `spanloop keys create laptop --scope ingest --scope score`
    """
    from spanloop.foundation.errors import ConfigurationError
    from spanloop.foundation.keys.api_keys import KeyRing, Scope

    try:
        scopes = [Scope(each) for each in scope]
    except ValueError as error:
        raise ConfigurationError(f"{error}.", next_step=f"A scope is one of {', '.join(Scope)}.") from error
    ring = KeyRing(data_directory(data_dir))
    is_first = not ring.is_required
    created = ring.create(name, scopes, service or ())
    out.print(created.secret, markup=False)
    err.print("the key is not shown again; a client sends it with:")
    if {*scopes} & {Scope.INGEST, Scope.SCORE, Scope.ADMIN}:
        err.print(f"  OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20{created.secret}", markup=False)
    if created.key.allows(Scope.ASK):
        err.print(f"  Authorization: Bearer {created.secret}", markup=False)
    if created.key.allows(Scope.SERVE):
        err.print(f"  OPENAI_API_KEY={created.secret}", markup=False)
    if is_first:
        err.print("from now on collector, gateway and mcp of this data directory require a key with every request")


@app.command("list")
def list_keys(data_dir: DataDirOption = None) -> None:
    """List all keys by id, name and scopes, without the keys themselves.

    Example: `spanloop keys list`
    """
    from spanloop.foundation.keys.api_keys import KeyRing

    keys = KeyRing(data_directory(data_dir)).list()
    if not keys:
        err.print("no keys: collector and gateway accept every request; they listen on this machine only")
        return
    print_table(
        ("key", "name", "scopes", "services", "made", "revoked"),
        (
            (key.id, key.name, ", ".join(key.scopes), ", ".join(key.services), key.created_at, key.revoked_at)
            for key in keys
        ),
    )


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="A key's id or name, as listed.")],
    data_dir: DataDirOption = None,
) -> None:
    """Revoke a key; it stops working at once.

    Example: `spanloop keys revoke laptop`
    """
    from spanloop.foundation.keys.api_keys import KeyRing

    revoked = KeyRing(data_directory(data_dir)).revoke(key)
    err.print(f"{revoked.id} ({revoked.name}) is revoked", markup=False)
