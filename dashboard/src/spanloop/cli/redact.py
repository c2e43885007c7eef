"""``spanloop redact``: which rules hold, and what they would do."""

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import err, out, print_table
from .options import DataDirOption, data_directory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanloop.collector.redaction import RedactionCounts, Redactor
    from spanloop.collector.redaction_rules import Rule

app = typer.Typer(help="Try the rules that keep secrets and personal data out of the store.", no_args_is_help=True)

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
    """Show the rules that a collector of this data directory starts with.

    Example: `spanloop redact rules`
    """
    found = _rules(data_dir, file)
    rows = [("known_leaks", "drop, mask", "headers, authorization, api_key, cookie", "always on")]
    for rule in found:
        what = "drop" if rule.is_dropped else f"mask with {rule.replacement}"
        where = "every text" if rule.glob == "" else f"attribute {rule.glob}"
        rows.append((rule.name, what, where, rule.pattern.source if rule.pattern else "whole value"))
    print_table(("rule", "action", "where", "what"), rows)
    slow = [rule.name for rule in found if rule.prefilter is None]
    if slow:
        err.print(
            f"every text of every span is looked at for {', '.join(slow)}: nothing in it can be searched for in whole "
            "requests (docs/how-to/redact.md says how to write it so)",
            markup=False,
        )


@app.command("test")
def try_(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="What `spanloop import` takes, or - for plain text.")],
    data_dir: DataDirOption = None,
    file: RulesOption = None,
) -> None:
    """Show what the rules would do to a file of spans, or to a text on standard input; nothing is stored.

    A text is printed as it would be stored. Of a file, each rule's hits are counted by attribute.

    Example: `echo 'mail alice@example.com' | spanloop redact test - --rules redaction.toml`
    """
    from spanloop.collector.redaction import Redactor

    redactor = Redactor(_rules(data_dir, file))
    if str(path) == "-":
        text, hits = redactor.redact_text(sys.stdin.read())
        typer.echo(text, nl=False)
        for (rule, _), count in sorted(hits.items()):
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

    hits: RedactionCounts = Counter()
    requests = touched = unread = 0
    for each in files.find([path]):
        for parcel in read_requests(each, lambda _: None):
            if not isinstance(parcel, ImportRequest):
                unread += parcel.items
                err.print(str(parcel), markup=False)
                continue
            requests += 1
            if redactor.may_match(parcel.body):
                is_traces = parcel.signal is Signal.TRACES
                own = redactor.redact(
                    parse(ExportTraceServiceRequest, parcel.body)
                    if is_traces
                    else parse(ExportLogsServiceRequest, parcel.body)
                )
                touched += bool(own)
                hits += own
    rows = [(rule, name or "(name, status or body)", f"{count:,}") for (rule, name), count in sorted(hits.items())]
    if rows:
        print_table(("rule", "attribute", "values"), rows, numbers=("values",))
    out.print(f"{touched:,} of {requests:,} requests would be changed")
    if unread:
        err.print(f"{unread:,} items cannot be read")
        raise typer.Exit(1)


def _rules(data_dir: Path | None, file: Path | None) -> "Sequence[Rule]":
    from spanloop.collector.redaction_rules import load_rules, read_rules

    return read_rules(file) if file is not None else load_rules(data_directory(data_dir))
