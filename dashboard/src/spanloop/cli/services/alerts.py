"""``spanloop alerts``: add, list, test and remove rules of alerts, and show what they alerted."""

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.markup import escape

from spanloop.runtime.command_line import command_line

from ..console import err, out, print_table
from ..options import DataDirOption, data_directory

if TYPE_CHECKING:
    from datetime import datetime

    from spanloop.training.alerts.alert_api import AlertApi
    from spanloop.training.alerts.entities import Alert

app = typer.Typer(
    help="Add, list, test and remove rules of alerts, and show what they alerted.\n\n"
    "A rule has a condition on failures, rewards, latency, jobs or promotions, and sends to channels of "
    "`[alerts.channels]` in spanloop.toml: webhooks, Slack and mail. The scheduler looks every second, sends a message "
    "when a condition begins to hold and one when it has not held for a minute, and tries again until it is received.",
    no_args_is_help=True,
)

RuleArgument = Annotated[str, typer.Argument(metavar="RULE", help="A rule's name, as `spanloop alerts list` shows it.")]

_TEST_TIMEOUT_S: Final = 30.0
_LOOK_S: Final = 0.2


def _api(data_dir: DataDirOption) -> "AlertApi":
    from spanloop.training.alerts.alert_api import AlertApi

    return AlertApi(data_directory(data_dir))


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="A name for the rule.")],
    when: Annotated[
        str,
        typer.Option(
            metavar="CONDITION",
            help="'failures above 20% over 1h', 'CLASS of AGENT above 5% over 1h with at least 20 episodes', 'reward "
            "below 0.5 over 1d', 'latency p95 above 30s over 15m', 'cost above 20 over 1d', 'job failed', 'job done', "
            "'job ended', 'promotion' or 'promotion promoted'.",
        ),
    ],
    to: Annotated[
        list[str],
        typer.Option(metavar="CHANNEL", help="A channel of [alerts.channels]; may be given several times."),
    ],
    data_dir: DataDirOption = None,
) -> None:
    """Add a rule; the scheduler looks at it from now on.

    Example: `spanloop alerts add bad-answers --when 'failures above 20% over 1h' --to ops`
    """
    rule = _api(data_dir).add(name, when, to)
    out.print(f"{rule.name}: {rule.condition}, to {', '.join(rule.channels)}", markup=False)
    err.print(f"try it: {command_line(f'alerts test {rule.name}', data_directory(data_dir))}", markup=False)


@app.command("list")
def list_rules(data_dir: DataDirOption = None) -> None:
    """List the rules, and since when each one fires.

    Example: `spanloop alerts list`
    """
    api = _api(data_dir)
    rules, firing = api.rules(), api.firing()
    if not rules:
        hint = command_line(
            "alerts add NAME --when 'failures above 20% over 1h' --to CHANNEL", data_directory(data_dir)
        )
        err.print(f"there is no rule; add one with: {hint}", markup=False)
        return
    print_table(
        ("rule", "condition", "to", "fires since (UTC)", "because of"),
        (
            (
                rule.name,
                str(rule.condition),
                ", ".join(rule.channels),
                _time(alert.opened_at) if (alert := firing.get(rule.name)) else "",
                alert.detail if alert else "",
            )
            for rule in rules
        ),
    )


@app.command("test")
def send_test(rule: RuleArgument, data_dir: DataDirOption = None) -> None:
    """Let the scheduler send a test message to each channel of a rule; wait until it was received or refused.

    Example: `spanloop alerts test bad-answers`
    """
    from spanloop.foundation.errors import NotRunningError, ServiceError

    api = _api(data_dir)
    alert = _await_outcome(api, api.test(rule).id)
    for delivery in alert.deliveries:
        out.print(str(delivery), markup=False)
    if any(delivery.is_open for delivery in alert.deliveries):
        raise NotRunningError(
            f"The test was not sent within {_TEST_TIMEOUT_S:.0f} s: the scheduler sends it, and none seems to run.",
            next_step=f"Start it: {command_line('up', data_directory(data_dir))}",
        )
    failed = [delivery.channel for delivery in alert.deliveries if delivery.received_at is None]
    if failed:
        raise ServiceError(
            f"The test was not received by {', '.join(failed)}.",
            next_step="Correct [alerts.channels] in spanloop.toml, or the variables that it names, and test again.",
        )


@app.command()
def remove(rule: RuleArgument, data_dir: DataDirOption = None) -> None:
    """Remove a rule; its history stays, and messages that wait are given up.

    Example: `spanloop alerts remove bad-answers`
    """
    _api(data_dir).remove(rule)
    out.print(f"{rule} removed", markup=False)


@app.command()
def history(
    rule: Annotated[str, typer.Argument(metavar="[RULE]", help="Only alerts of this rule.")] = "",
    data_dir: DataDirOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many alerts, the newest first.")] = 20,
) -> None:
    """Show alerts and what became of their messages, the newest first; also those of rules that were removed.

    Example: `spanloop alerts history bad-answers`
    """
    alerts = _api(data_dir).history(rule=rule, limit=limit)
    if not alerts:
        err.print("nothing was alerted")
        return
    for alert in alerts:
        ended = f" to {_time(alert.resolved_at)}" if alert.resolved_at and alert.resolved_at > alert.opened_at else ""
        out.print(f"[bold]{escape(alert.rule)}[/bold] {alert.state} [dim]{_time(alert.opened_at)}{ended} UTC[/dim]")
        for line in (alert.detail, alert.link, *map(str, alert.deliveries)):
            out.print(f"  {line}", markup=False)


def _await_outcome(api: "AlertApi", alert_id: int) -> "Alert":
    deadline_s = time.monotonic() + _TEST_TIMEOUT_S
    while True:
        alert = api.get(alert_id)
        if time.monotonic() > deadline_s or not any(delivery.is_open for delivery in alert.deliveries):
            return alert
        time.sleep(_LOOK_S)


def _time(moment: "datetime") -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"
