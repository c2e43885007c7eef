"""``spanloop dead-letters``: list, show and replay rejected spans and requests."""

import base64
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer
from rich.markup import escape

from spanloop.runtime.command_line import command_line
from spanloop.semconv.environment import KEY_ENV, read_setting

from ..console import err, out, print_table
from ..options import DataDirOption, data_directory

if TYPE_CHECKING:
    from datetime import datetime

    import httpx

    from spanloop.foundation.paths import DataDir
    from spanloop.store import Store

app = typer.Typer(
    help="List, show and replay dead letters: spans and requests that were rejected.", no_args_is_help=True
)

LetterArgument = Annotated[str, typer.Argument(metavar="ID", help="A dead letter's id, or its first digits.")]
ReasonOption = Annotated[str, typer.Option(help="Only dead letters of this reason, as listed.")]
_PATHS: Final = {"traces": "/v1/traces", "logs": "/v1/logs"}
_MAX_REPLAYED: Final = 1_000_000
_TIMEOUT_S: Final = 60.0


@app.command("list")
def list_dead_letters(
    data_dir: DataDirOption = None,
    reason: ReasonOption = "",
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many, the newest first.")] = 20,
    all_: Annotated[bool, typer.Option("--all", help="Include dead letters that were replayed.")] = False,
) -> None:
    """List the newest dead letters with the reason of rejection and their traces.

    Example: `spanloop dead-letters list --reason bad_trace_id`
    """
    with _store(data_directory(data_dir)) as store:
        rows = store.query("dead_letter_list", reason=reason, with_replayed=int(all_), limit=limit).to_dicts()
    if not rows:
        err.print("no dead letters", markup=False)
        return
    print_table(
        ("id", "received (UTC)", "signal", "reason", "items", "traces", "detail"),
        (
            (
                row["dead_letter_id"][:12],
                f"{cast('datetime', row['received_at']):%Y-%m-%d %H:%M:%S}",
                row["signal"],
                f"{row['reason']} (replayed)" if row["is_replayed"] else row["reason"],
                str(row["item_count"]),
                _shorten(row["trace_ids"]),
                row["detail"],
            )
            for row in rows
        ),
        numbers=("items",),
    )


@app.command()
def show(
    letter: LetterArgument,
    data_dir: DataDirOption = None,
    raw: Annotated[bool, typer.Option("--raw", help="Print only the request body, byte for byte.")] = False,
) -> None:
    """Show one dead letter with its body as JSON or as protobuf's text format.

    Example: `spanloop dead-letters show 4be1a09d3c`
    """
    with _store(data_directory(data_dir)) as store:
        row = _load_letter(store, letter)
    body = base64.b64decode(row["raw_base64"])
    if raw:
        typer.echo(body, nl=False)
        return
    for name in ("dead_letter_id", "received_at", "signal", "reason", "detail", "content_type", "item_count"):
        out.print(f"[dim]{name}[/dim] {escape(str(row[name]))}")
    out.print(f"[dim]trace_ids[/dim] {escape(', '.join(row['trace_ids']) or '-')}")
    out.print(f"[dim]span_ids[/dim] {escape(', '.join(row['span_ids']) or '-')}")
    out.print(f"[dim]replayed_at[/dim] {row['replayed_at'] if row['is_replayed'] else '-'}")
    out.print(_body_text(row["signal"], row["content_type"], body), markup=False)


@app.command()
def replay(
    letters: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of dead letters.")] = None,
    data_dir: DataDirOption = None,
    reason: ReasonOption = "",
    all_: Annotated[bool, typer.Option("--all", help="Every dead letter that was not replayed yet.")] = False,
    key: Annotated[
        str,
        typer.Option(
            help="An API key with the scope ingest, if keys are required.", show_default="SPANLOOP_KEY, if it is set"
        ),
    ] = "",
) -> None:
    """Send dead letters to the running collector again and mark the accepted ones.

    Exit code 1 when some are rejected again.

    Example: `spanloop dead-letters replay --reason refused_by_clickhouse`
    """
    import httpx

    from spanloop.foundation.errors import NotRunningError
    from spanloop.foundation.keys.service_keys import bearer, trusted_certificates

    directory = data_directory(data_dir)
    if not letters and not reason and not all_:
        raise typer.BadParameter("name dead letters, or a --reason, or --all")
    collector = directory.find("collector")
    if collector is None:
        raise NotRunningError(
            f"No collector runs on {directory.path} to replay dead letters to.",
            next_step=f"Start it: {command_line('up', directory)}",
        )
    headers, verify = bearer(key or read_setting(KEY_ENV)), trusted_certificates(collector.url)
    with (
        _store(directory) as store,
        httpx.Client(
            base_url=collector.url, timeout=_TIMEOUT_S, headers=headers, verify=verify, trust_env=False
        ) as client,
    ):
        if letters:
            letter_ids = [str(_load_letter(store, prefix)["dead_letter_id"]) for prefix in letters]
        else:
            rows = store.query("dead_letter_list", reason=reason, with_replayed=0, limit=_MAX_REPLAYED)
            letter_ids = [str(letter_id) for letter_id in rows["dead_letter_id"]]
        refused = 0
        for letter_id in letter_ids:
            row = _load_letter(store, letter_id)
            refusal = _send(client, row)
            if refusal:
                refused += 1
                err.print(f"{letter_id[:12]} refused again: {refusal}", markup=False)
            else:
                # ClickHouse may refuse it again before the mark: then it has a newer receive time and is not marked.
                store.execute("dead_letter_mark", dead_letter_id=letter_id, received_ns=int(row["received_ns"]))
    out.print(f"{len(letter_ids) - refused} replayed, {refused} refused again", markup=False)
    if refused:
        raise typer.Exit(1)


def _store(directory: "DataDir") -> "Store":
    from spanloop.store import connect

    return connect(directory)


def _load_letter(store: "Store", prefix: str) -> dict[str, str]:
    from spanloop.foundation.errors import ConfigurationError

    matches = store.query("dead_letter_show", prefix=prefix).to_dicts()
    if len(matches) == 1:
        return matches[0]
    count = "more than one dead letter has" if matches else "no dead letter has"
    raise ConfigurationError(
        f"Got {prefix!r}, but {count} an id that starts with it.", next_step="See: spanloop dead-letters list --all"
    )


def _send(client: "httpx.Client", row: dict[str, str]) -> str:
    """Send a dead letter's body; return why it was refused again, empty when it was accepted completely."""
    from google.protobuf.message import DecodeError

    path, body = _PATHS.get(row["signal"]), base64.b64decode(row["raw_base64"])
    if path is None or not body:
        return "its body was not stored" if path else f"the collector does not accept the signal {row['signal']!r}"
    import httpx

    from spanloop.foundation.errors import ConfigurationError, ServiceError

    try:
        response = client.post(path, content=body, headers={"content-type": row["content_type"]})
    except httpx.HTTPError as error:
        raise ServiceError(f"The collector at {client.base_url} does not respond: {error}.") from error
    if response.status_code in {401, 403}:
        raise ConfigurationError(
            f"The collector at {client.base_url} requires an API key with the scope ingest.",
            next_step=f"Give one with --key or {KEY_ENV}; `spanloop keys create` creates one.",
        )
    if response.status_code >= 500:
        raise ServiceError(
            f"The collector at {client.base_url} cannot accept it now (status {response.status_code}).",
            next_step="See `spanloop status`, then replay the rest.",
        )
    if response.status_code != 200:
        return f"status {response.status_code}"
    if row["content_type"] == "application/json":
        return str(response.json().get("partialSuccess", {}).get("errorMessage", ""))
    try:
        return str(_partial_success_message(row["signal"], response.content))
    except DecodeError as error:
        raise ServiceError(f"The response of the collector at {client.base_url} is not OTLP: {error}.") from error


def _partial_success_message(signal: str, content: bytes) -> str:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    response = ExportTraceServiceResponse() if signal == "traces" else ExportLogsServiceResponse()
    response.MergeFromString(content)
    return response.partial_success.error_message


def _body_text(signal: str, content_type: str, body: bytes) -> str:
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    if content_type == "application/json":
        return body.decode("utf-8", "replace")
    request = ExportTraceServiceRequest() if signal == "traces" else ExportLogsServiceRequest()
    try:
        request.MergeFromString(body)
    except DecodeError:
        return f"{len(body)} bytes that are not a protobuf request; write them to a file with --raw"
    return str(request)


def _shorten(ids: list[str]) -> str:
    return "" if not ids else ids[0] if len(ids) == 1 else f"{ids[0]} +{len(ids) - 1}"
