"""``spanloop judge``: say what a person thinks of episodes, steps and failures, take it back and list it."""

from typing import TYPE_CHECKING, Annotated

import typer

from ..console import err, out, print_table
from ..options import DataDirOption, data_directory

if TYPE_CHECKING:
    from spanloop.store.judgements import Opinion

app = typer.Typer(
    help="Judge episodes, steps and failures by hand; it wins over scores and rules.", no_args_is_help=True
)

_OWNERS = "policy, tool, environment, harness, user or unknown"


@app.command()
def add(
    verdict: Annotated[str, typer.Argument(metavar="[good|bad]", help="Whether it is in order.")] = "",
    episode: Annotated[str, typer.Option("--episode", help="The episode's id, as the dashboard shows it.")] = "",
    step: Annotated[int | None, typer.Option(min=0, help="Judge this step instead of the episode.")] = None,
    failure: Annotated[int | None, typer.Option(min=0, help="Judge this failure; `judge show` numbers them.")] = None,
    owner: Annotated[str, typer.Option(help=f"Who caused what is wrong: {_OWNERS}.")] = "",
    category: Annotated[str, typer.Option(help="Class of what is wrong; it marks the episode.")] = "",
    number: Annotated[float | None, typer.Option(help="The reward, in place of any other.")] = None,
    correction: Annotated[str, typer.Option(help="The answer that would have been right.")] = "",
    comment: Annotated[str, typer.Option(help="The reason.")] = "",
    judged_by: Annotated[str, typer.Option("--by", help="Your name.")] = "person",
    data_dir: DataDirOption = None,
) -> None:
    """Judge an episode, a step or a failure, and print the judgement's id.

    The episode is converted again. Judging again replaces what you said before.

    Example: `spanloop judge add bad --episode 4bf92f3577b34da6a3ce929d0e0e4736 --owner environment`
    """
    from spanloop.store import connect
    from spanloop.store.judgements import find_target, judge

    opinion = _opinion(
        verdict=verdict or None,
        fault_owner=owner,
        category=category,
        number=number,
        correction=correction,
        comment=comment,
    )
    with connect(data_directory(data_dir), start=True) as store:
        target = find_target(store, episode, step=step, failure=failure)
        out.print(judge(store, target, opinion, judged_by=judged_by), markup=False)


@app.command()
def undo(
    judgements: Annotated[list[str], typer.Argument(metavar="JUDGEMENT…", help="Ids of judgements, as listed.")],
    data_dir: DataDirOption = None,
) -> None:
    """Take judgements back; their episodes are converted again.

    Example: `spanloop judge undo 0a8b6c1d2e3f40516273849506a7b8c9`
    """
    from spanloop.store import connect
    from spanloop.store.judgements import withdraw

    with connect(data_directory(data_dir), start=True) as store:
        withdraw(store, judgements)


@app.command()
def show(
    episode: Annotated[str, typer.Argument(metavar="EPISODE", help="The episode's id.")],
    data_dir: DataDirOption = None,
) -> None:
    """Show what can be judged in an episode: its failures by number, with the rules' verdicts.

    Example: `spanloop judge show 4bf92f3577b34da6a3ce929d0e0e4736`
    """
    from spanloop.store import connect
    from spanloop.store.judgements import find_target

    with connect(data_directory(data_dir), start=True) as store:
        target = find_target(store, episode)
        failures = store.query("judgements_failures", episode_id=episode, revision=target.revision)
    out.print(f"revision {target.revision}, outcome {target.rule_outcome}", markup=False)
    if failures.is_empty():
        err.print("no failures")
        return
    rows = [
        (
            row["failure_id"].rpartition("/")[2],
            str(row["step"]),
            row["fault_owner"],
            row["error_class"],
            row["rule"],
            "yes" if row["is_recovered"] else "no",
            row["message"],
        )
        for row in sorted(failures.to_dicts(), key=lambda row: int(row["failure_id"].rpartition("/")[2]))
    ]
    print_table(
        ("failure", "step", "owner", "class", "rule", "recovered", "message"), rows, numbers=("failure", "step")
    )


@app.command("list")
def list_judgements(
    episode: Annotated[str, typer.Option("--episode", help="Only of this episode.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many, the newest first.")] = 20,
    data_dir: DataDirOption = None,
) -> None:
    """List the judgements that count, the newest first.

    Example: `spanloop judge list --limit 100`
    """
    from spanloop.store import connect
    from spanloop.store.judgements import fetch_judgements

    with connect(data_directory(data_dir), start=True) as store:
        judgements = fetch_judgements(store, episode_ids=[episode] if episode else [], limit=limit)
    if judgements.is_empty():
        err.print("no judgements")
        return
    rows = [
        (
            row["judgement_id"],
            row["episode_id"],
            f"{row['scope']} {row['step']}" if row["scope"] == "step" else row["scope"],
            row["verdict"],
            row["fault_owner"],
            row["category"],
            "" if row["number"] is None else f"{row['number']:g}",
            row["judged_by"],
            f"{row['judged_at']:%Y-%m-%d %H:%M:%S}",
            row["comment"],
        )
        for row in judgements.to_dicts()
    ]
    columns = ("judgement", "episode", "about", "verdict", "owner", "category", "number", "by", "given", "comment")
    print_table(columns, rows, numbers=("number",))


@app.command()
def rules(data_dir: DataDirOption = None) -> None:
    """Count how often people agree and disagree with each rule.

    Example: `spanloop judge rules`
    """
    from spanloop.store import connect
    from spanloop.store.judgements import count_by_rule

    with connect(data_directory(data_dir), start=True) as store:
        by_rule = count_by_rule(store)
    if by_rule.is_empty():
        err.print("no judgements of what a rule says")
        return
    rows = [(rule, *map(str, counts)) for rule, *counts in by_rule.drop("newest").iter_rows()]
    print_table(("rule", "judged", "agreed", "disagreed"), rows, numbers=("judged", "agreed", "disagreed"))


def _opinion(**fields: object) -> "Opinion":
    from pydantic import ValidationError

    from spanloop.foundation.errors import ConfigurationError
    from spanloop.store.judgements import Opinion

    try:
        return Opinion.model_validate(fields)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))} {each['msg']}".strip() for each in error.errors())
        raise ConfigurationError(
            f"The judgement is invalid: {problems}.", next_step="See the options: spanloop judge add --help"
        ) from error
