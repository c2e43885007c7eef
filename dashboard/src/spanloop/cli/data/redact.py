"""``spanloop redact``: show the redaction rules and try them on a file or text."""

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..console import err, out, print_table
from ..options import DataDirOption, data_directory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanloop.collector.redaction.redactor import RedactionCounts, Redactor
    from spanloop.collector.redaction.rules import Rule

app = typer.Typer(help="Show and try the rules that remove secrets and personal data.", no_args_is_help=True)

RulesOption = Annotated[
    Path | None,
    typer.Option(
        "--rules",
        help="A rules file; default: $SPANLOOP_REDACT, else redaction.toml in the data directory.",
        show_default=False,
    ),
]


@app.command()
def rules(data_dir: DataDirOption = None, file: RulesOption = None) -> None:
    """List the rules that a collector of this data directory applies.

    Example: `spanloop redact rules`
    """
    configured = _load_rules(data_dir, file)
    rows = [("known_leaks", "drop, mask", "headers, authorization, api_key, cookie", "always on")]
    for rule in configured:
        action = "drop" if rule.is_dropped else f"mask with {rule.replacement}"
        where = "every text" if rule.glob == "" else f"attribute {rule.glob}"
        rows.append((rule.name, action, where, rule.pattern.source if rule.pattern else "whole value"))
    print_table(("rule", "action", "where", "what"), rows)
    slow = [rule.name for rule in configured if rule.prefilter is None]
    if slow:
        err.print(
            f"{', '.join(slow)} is matched against every text of every span, because its pattern has no fixed text to "
            "search whole requests for (see docs/how-to/redact.md)",
            markup=False,
        )


@app.command("test")
def try_(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="A file that `spanloop import` reads, or - for plain text.")
    ],
    data_dir: DataDirOption = None,
    file: RulesOption = None,
) -> None:
    """Try the rules on a file of spans, or on text from standard input; nothing is stored.

    Text is printed as it would be stored. For a file, the matches of each rule are counted by attribute.

    Example: `echo 'mail alice@example.com' | spanloop redact test - --rules redaction.toml`
    """
    from spanloop.collector.redaction.redactor import Redactor

    redactor = Redactor(_load_rules(data_dir, file))
    if str(path) == "-":
        text, counts = redactor.redact_text(sys.stdin.read())
        typer.echo(text, nl=False)
        for (rule, _), count in sorted(counts.items()):
            err.print(f"{rule}: {count}", markup=False)
        return
    _test_file(path, redactor)


def _test_file(path: Path, redactor: "Redactor") -> None:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    from spanloop.collector.dead_letters import Signal
    from spanloop.collector.otlp.wire import parse
    from spanloop.importing import files
    from spanloop.importing.import_requests import ImportRequest
    from spanloop.importing.importer import read_requests

    counts: RedactionCounts = Counter()
    requests = changed = unreadable = 0
    for file in files.find([path]):
        for request in read_requests(file, lambda _: None):
            if not isinstance(request, ImportRequest):
                unreadable += request.items
                err.print(str(request), markup=False)
                continue
            requests += 1
            if redactor.may_match(request.body):
                is_traces = request.signal is Signal.TRACES
                request_counts = redactor.redact(
                    parse(ExportTraceServiceRequest, request.body)
                    if is_traces
                    else parse(ExportLogsServiceRequest, request.body)
                )
                changed += bool(request_counts)
                counts += request_counts
    rows = [(rule, name or "(name, status or body)", f"{count:,}") for (rule, name), count in sorted(counts.items())]
    if rows:
        print_table(("rule", "attribute", "values"), rows, numbers=("values",))
    out.print(f"{changed:,} of {requests:,} requests would be changed")
    if unreadable:
        err.print(f"{unreadable:,} items cannot be read")
        raise typer.Exit(1)


def _load_rules(data_dir: Path | None, file: Path | None) -> "Sequence[Rule]":
    from spanloop.collector.redaction.rules import load_rules, read_rules

    return read_rules(file) if file is not None else load_rules(data_directory(data_dir))
