"""``spanloop dead-letters``: look at what was not accepted, and send it again."""

import base64
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer
from rich.markup import escape

from spanloop.runtime.command_line import command_line

from .console import err, out, print_table
from .options import DataDirOption, data_directory

if TYPE_CHECKING:
    from datetime import datetime

    import httpx

    from spanloop.datadir import DataDir
    from spanloop.store import Store

app = typer.Typer(
    help="Look at spans and requests that could not be accepted, and send them again.", no_args_is_help=True
)

LetterArgument = Annotated[str, typer.Argument(metavar="ID", help="A dead letter's id, or its first digits.")]
ReasonOption = Annotated[str, typer.Option(help="Only those of this reason, as listed.")]
_PATHS: Final = {"traces": "/v1/traces", "logs": "/v1/logs"}
_MOST: Final = 1_000_000
_TIMEOUT_S: Final = 60.0


@app.command("list")
def list_dead_letters(
    data_dir: DataDirOption = None,
    reason: ReasonOption = "",
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many, the newest first.")] = 20,
    all_: Annotated[bool, typer.Option("--all", help="Also those that were replayed.")] = False,
) -> None:
    """Show the newest dead letters: what was refused, why, and which traces it belongs to.

    Example: `spanloop dead-letters list --reason bad_trace_id`
    """
    with _store(data_directory(data_dir)) as store:
        found = store.query("dead_letter_list", reason=reason, with_replayed=int(all_), limit=limit).to_dicts()
    if not found:
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
                _short(row["trace_ids"]),
                row["detail"],
            )
            for row in found
        ),
        numbers=("items",),
    )


@app.command()
def show(
    letter: LetterArgument,
    data_dir: DataDirOption = None,
    raw: Annotated[bool, typer.Option("--raw", help="Only the request body, byte for byte, for a file.")] = False,
) -> None:
    """Show one dead letter with its body: JSON, or protobuf as text.

    Example: `spanloop dead-letters show 4be1a09d3c`
    """
    with _store(data_directory(data_dir)) as store:
        row = _find(store, letter)
    body = base64.b64decode(row["raw_base64"])
    if raw:
        typer.echo(body, nl=False)
        return
    for name in ("dead_letter_id", "received_at", "signal", "reason", "detail", "content_type", "item_count"):
        out.print(f"[dim]{name}[/dim] {escape(str(row[name]))}")
    out.print(f"[dim]trace_ids[/dim] {escape(', '.join(row['trace_ids']) or '-')}")
    out.print(f"[dim]span_ids[/dim] {escape(', '.join(row['span_ids']) or '-')}")
    out.print(f"[dim]replayed_at[/dim] {row['replayed_at'] if row['is_replayed'] else '-'}")
    out.print(_as_text(row["signal"], row["content_type"], body), markup=False)


@app.command()
def replay(
    letters: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="As listed.")] = None,
    data_dir: DataDirOption = None,
    reason: ReasonOption = "",
    all_: Annotated[bool, typer.Option("--all", help="Every one that was not replayed yet.")] = False,
    key: Annotated[
        str, typer.Option(envvar="SPANLOOP_API_KEY", help="An API key with the scope ingest, where one is wanted.")
    ] = "",
) -> None:
    """Send dead letters to the running collector again; those that are accepted now are marked.

    Exit code 1 when some are refused again.

    Example: `spanloop dead-letters replay --reason refused_by_clickhouse`
    """
    import httpx

    from spanloop.semconv.errors import NotRunningError

    directory = data_directory(data_dir)
    if not letters and not reason and not all_:
        raise typer.BadParameter("name dead letters, or a --reason, or --all")
    collector = directory.running("collector")
    if collector is None:
        raise NotRunningError(
            f"No collector runs on {directory.path}, so nothing can be sent to it.",
            next_step=f"Start it: {command_line('up', directory)}",
        )
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with (
        _store(directory) as store,
        httpx.Client(base_url=collector.url, timeout=_TIMEOUT_S, headers=headers) as client,
    ):
        if letters:
            chosen = [str(_find(store, each)["dead_letter_id"]) for each in letters]
        else:
            found = store.query("dead_letter_list", reason=reason, with_replayed=0, limit=_MOST)
            chosen = [str(each) for each in found["dead_letter_id"]]
        refused = 0
        for each in chosen:
            row = _find(store, each)
            answer = _send(client, row)
            if answer:
                refused += 1
                err.print(f"{each[:12]} refused again: {answer}", markup=False)
            else:
                # ClickHouse may refuse it again before it is marked; then it was received again, and stays.
                store.execute("dead_letter_mark", dead_letter_id=each, received_ns=int(row["received_ns"]))
    out.print(f"{len(chosen) - refused} replayed, {refused} refused again", markup=False)
    if refused:
        raise typer.Exit(1)


def _store(directory: "DataDir") -> "Store":
    from spanloop.store import connect

    return connect(directory)


def _find(store: "Store", prefix: str) -> dict[str, str]:
    from spanloop.semconv.errors import ConfigurationError

    found = store.query("dead_letter_show", prefix=prefix).to_dicts()
    if len(found) == 1:
        return found[0]
    many = "more than one dead letter has" if found else "no dead letter has"
    raise ConfigurationError(
        f"Got {prefix!r}, but {many} an id that starts with it.", next_step="See: spanloop dead-letters list --all"
    )


def _send(client: "httpx.Client", row: dict[str, str]) -> str:
    """Why it was refused again; empty when all of it is accepted."""
    from google.protobuf.message import DecodeError

    path, body = _PATHS.get(row["signal"]), base64.b64decode(row["raw_base64"])
    if path is None or not body:
        return "its body was not kept" if path else f"{row['signal']!r} is no signal that the collector takes"
    import httpx

    from spanloop.semconv.errors import ConfigurationError, ServiceError

    try:
        answer = client.post(path, content=body, headers={"content-type": row["content_type"]})
    except httpx.HTTPError as error:
        raise ServiceError(f"The collector at {client.base_url} does not answer: {error}.") from error
    if answer.status_code in {401, 403}:
        raise ConfigurationError(
            f"The collector at {client.base_url} wants an API key with the scope ingest.",
            next_step="Give one with --key or SPANLOOP_API_KEY; `spanloop keys create` makes one.",
        )
    if answer.status_code >= 500:
        raise ServiceError(
            f"The collector at {client.base_url} cannot take it now (status {answer.status_code}).",
            next_step="See `spanloop status`, then replay the rest.",
        )
    if answer.status_code != 200:
        return f"status {answer.status_code}"
    if row["content_type"] == "application/json":
        return str(answer.json().get("partialSuccess", {}).get("errorMessage", ""))
    try:
        return str(_partial(row["signal"], answer.content))
    except DecodeError as error:
        raise ServiceError(f"The collector at {client.base_url} answers what is no OTLP: {error}.") from error


def _partial(signal: str, content: bytes) -> str:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    answer = ExportTraceServiceResponse() if signal == "traces" else ExportLogsServiceResponse()
    answer.MergeFromString(content)
    return answer.partial_success.error_message


def _as_text(signal: str, content_type: str, body: bytes) -> str:
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    if content_type == "application/json":
        return body.decode("utf-8", "replace")
    request = ExportTraceServiceRequest() if signal == "traces" else ExportLogsServiceRequest()
    try:
        request.MergeFromString(body)
    except DecodeError:
        return f"{len(body)} bytes that are no protobuf request; write them to a file with --raw"
    return str(request)


def _short(ids: list[str]) -> str:
    return "" if not ids else ids[0] if len(ids) == 1 else f"{ids[0]} +{len(ids) - 1}"
