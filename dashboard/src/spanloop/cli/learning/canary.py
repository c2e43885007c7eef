"""``spanloop canary``: let a candidate answer a share of the sessions, and compare it with the champion."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from spanloop.runtime.command_line import command_line

from ..console import err, out, print_table
from ..options import DataDirOption, ModelArgument, data_directory
from .promotion import print_decision, promotion_actions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spanloop.training.promotion.canary.gateway_canary import RunningCanary
    from spanloop.training.promotion.canary.look import CanaryLook

app = typer.Typer(help="Let a candidate answer a share of the sessions, and let the rule decide.", no_args_is_help=True)


@app.command()
def start(
    model: ModelArgument,
    share: Annotated[float, typer.Option(help="Of the new sessions; above 0, at most 1.")] = 0.1,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Send it a copy of a share of the calls instead; it answers nobody.")
    ] = False,
    upstream: Annotated[
        str, typer.Option(metavar="URL", help="A vLLM server that serves the candidate; default: start one.")
    ] = "",
    data_dir: DataDirOption = None,
) -> None:
    """Let a candidate answer a share of the new sessions until the rule in spanloop.toml promotes it or rolls it back.

    A session is what has one x-session-id header, else one session.id in its baggage, else one trace. None changes its
    version. The champion answers what the candidate fails to.

    With --shadow the champion answers every call, and then the candidate gets a copy of some. Its answers are compared,
    never returned and never trained on; nothing is decided.

    Example: `spanloop canary start mine@v4 --share 0.1`
    """
    from spanloop.foundation.settings import load_configuration
    from spanloop.training.promotion.canary.decision import begin_canary
    from spanloop.training.promotion.canary.gateway_canary import CanaryRequest

    directory = data_directory(data_dir)
    rule = load_configuration(directory.path).promotion
    err.print("starting the candidate's engine beside the champion's")
    canary = begin_canary(directory, CanaryRequest(model, share, shadow, upstream), rule)
    _print_canary(canary)
    err.print(f"see how it does: {command_line('canary status', directory)}", markup=False)


@app.command()
def status(data_dir: DataDirOption = None) -> None:
    """Show how the candidate and the champion do, and decide when the evidence suffices.

    Look as often as you like: the test allows for it. Under `spanloop up` the scheduler looks every half minute.

    Example: `spanloop canary status`
    """
    from spanloop.foundation.settings import load_configuration
    from spanloop.store import connect
    from spanloop.training.promotion.canary.decision import decide_canary
    from spanloop.training.promotion.canary.gateway_canary import running_canary

    directory = data_directory(data_dir)
    rule = load_configuration(directory.path).promotion
    with connect(directory) as store:
        running = running_canary(directory)
        if running is not None and running.is_shadow:
            _print_canary(running)
            _print_shadow(running, store.query("canary_shadow", canary_id=running.id).row(0, named=True))
            return
        state = decide_canary(store, directory, rule, promotion_actions(directory))
        if state is None:
            err.print(
                f"no canary runs; start one: {command_line('canary start NAME@VERSION', directory)}", markup=False
            )
            return
        traffic = store.query("canary_traffic", canary_id=state.canary.id)
    _print_canary(state.canary)
    print_table(
        ("calls", "sessions", "calls", "errors", "p50 s", "p95 s", "tokens"),
        [
            (
                state.canary.candidate if row["arm"] == "candidate" else state.canary.champion,
                f"{row['sessions']:,}",
                f"{row['calls']:,}",
                f"{row['errors']:,}",
                f"{row['latency_p50_s']:.2f}",
                f"{row['latency_p95_s']:.2f}",
                f"{row['tokens']:,.0f}",
            )
            for row in traffic.iter_rows(named=True)
        ],
        numbers=("sessions", "calls", "errors", "p50 s", "p95 s", "tokens"),
    )
    _print_look(state.canary, state.look)
    if state.decision is None:
        out.print(f"undecided: {state.look.judgement.evidence.reason}", markup=False)
    else:
        print_decision(state.decision)


@app.command()
def stop(data_dir: DataDirOption = None) -> None:
    """End the canary without a decision: the champion answers everything.

    Example: `spanloop canary stop`
    """
    from spanloop.training.promotion.canary.gateway_canary import stop_canary

    ended = stop_canary(data_directory(data_dir))
    if ended is None:
        err.print("no canary runs")
    else:
        out.print(f"the canary of {ended.candidate} is over; {ended.champion} answers everything", markup=False)


def _print_canary(canary: "RunningCanary") -> None:
    what = "shadow" if canary.is_shadow else "canary"
    of = "calls" if canary.is_shadow else "sessions"
    out.print(
        f"{what} of {canary.candidate} against {canary.champion}: {canary.share:.1%} of the {of} since "
        f"{canary.started_at:%Y-%m-%d %H:%M} UTC; its engine is {canary.engine}",
        markup=False,
    )
    if canary.error:
        err.print(canary.error, markup=False)


def _print_shadow(canary: "RunningCanary", row: "Mapping[str, Any]") -> None:
    answered = row["calls"] - row["errors"]
    out.print(f"{row['calls']:,} calls were copied; {row['errors']:,} failed", markup=False)
    if not answered:
        return
    print_table(
        ("both answered", canary.candidate, canary.champion),
        [
            ("valid tool calls", f"{row['valid'] / answered:.1%}", f"{row['champion_valid'] / answered:.1%}"),
            ("median latency, s", f"{row['latency_p50_s']:.2f}", f"{row['champion_latency_p50_s']:.2f}"),
            ("tokens of an answer", f"{row['tokens'] / answered:,.0f}", f"{row['champion_tokens'] / answered:,.0f}"),
        ],
    )
    out.print(
        f"the answers are the same in {row['same']:,} calls, call the same tools with other arguments in "
        f"{row['same_tools']:,}, and differ in {row['different']:,}",
        markup=False,
    )


def _print_look(canary: "RunningCanary", found: "CanaryLook") -> None:
    arms = (found.candidate, found.champion)
    rows = [("rewarded sessions", *(f"{arm.sessions:,}" for arm in arms))]
    for metric in sorted(found.candidate.means.keys() | found.champion.means.keys()):
        values = [arm.means.get(metric) for arm in arms]
        rows.append((str(metric), *("" if value is None else f"{value:.3f}" for value in values)))
    rows += [
        (f"failures by {owner}", *(f"{arm.owners.get(owner, 0):,}" for arm in arms))
        for owner in sorted(found.candidate.owners.keys() | found.champion.owners.keys())
    ]
    print_table(("counted sessions", canary.candidate, canary.champion), rows)
