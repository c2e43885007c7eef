"""``spanloop scores``: add, list and delete scores."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console import err, out, print_table
from ..options import DataDirOption, data_directory

if TYPE_CHECKING:
    import polars as pl

    from spanloop.store import Store

app = typer.Typer(help="Add, list and delete scores of spans, traces, sessions and episodes.", no_args_is_help=True)

TraceOption = Annotated[str, typer.Option("--trace", help="A trace id.")]
ResponseOption = Annotated[str, typer.Option("--response", help="The id of a chat completion.")]
SessionOption = Annotated[str, typer.Option("--session", help="A session id.")]
EpisodeOption = Annotated[str, typer.Option("--episode", help="An episode's id, as the dashboard shows it.")]


@app.command()
def add(
    value: Annotated[float, typer.Argument(help="Higher is better.")],
    name: Annotated[str, typer.Option(help="The score's name; `reward` sets an episode's reward.")] = "reward",
    trace: TraceOption = "",
    span: Annotated[str, typer.Option("--span", help="A span id of that trace.")] = "",
    response: ResponseOption = "",
    session: SessionOption = "",
    episode: EpisodeOption = "",
    label: Annotated[str, typer.Option(help="A label, such as pass.")] = "",
    comment: Annotated[str, typer.Option(help="The reason.")] = "",
    source: Annotated[str, typer.Option(help="Who or what gave the score.")] = "person",
    key: Annotated[str, typer.Option(help="The score's key.", show_default="from target, name and source")] = "",
    timestamp: Annotated[datetime | None, typer.Option(help="Time of the score (UTC).", show_default="now")] = None,
    data_dir: DataDirOption = None,
) -> None:
    """Score a span, trace, response, session or episode, and print the key; the same key replaces a score.

    What is scored must be stored already.

    Example: `spanloop scores add 1 --episode 4bf92f3577b34da6a3ce929d0e0e4736 --comment "solved it"`
    """
    fields: dict[str, Any] = {
        "id": key,
        "name": name,
        "value": value,
        "label": label,
        "comment": comment,
        "source": source,
        "trace_id": trace,
        "span_id": span,
        "response_id": response,
        "session_id": session,
        "episode_id": episode,
        "timestamp": timestamp,
    }
    out.print(store_score(data_dir, fields), markup=False)


def store_score(data_dir: DataDirOption, fields: dict[str, Any], *, what: str = "score") -> str:
    """Store one score and return its key.

    Raises:
        ConfigurationError: A field is invalid, or a target is not stored.
    """
    from pydantic import ValidationError

    from spanloop.foundation.errors import ConfigurationError
    from spanloop.store import connect
    from spanloop.store.scores import Score, add_scores, require_targets

    try:
        score = Score.model_validate(fields)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))} {each['msg']}".strip() for each in error.errors())
        raise ConfigurationError(
            f"The {what} is invalid: {problems}.", next_step=f"See the options: spanloop {what}s add --help"
        ) from error
    with connect(data_directory(data_dir), start=True) as store:
        require_targets(store, score)
        (score_key,) = add_scores(store, [score])
    return score_key


@app.command("list")
def list_scores(
    trace: TraceOption = "",
    response: ResponseOption = "",
    session: SessionOption = "",
    episode: EpisodeOption = "",
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many, the newest first.")] = 20,
    data_dir: DataDirOption = None,
) -> None:
    """List the newest scores, of all targets or of one trace, response, session or episode.

    Example: `spanloop scores list --trace 4bf92f3577b34da6a3ce929d0e0e4736`
    """
    from spanloop.store import connect

    with connect(data_directory(data_dir), start=True) as store:
        scores = _newest(store, limit, trace_id=trace, response_id=response, session_id=session, episode_id=episode)
    if scores.is_empty():
        err.print("no scores")
        return
    targets = ("episode_key", "response_id", "session_id", "trace_id", "span_id")
    rows = [
        (
            row["score_id"],
            row["name"],
            f"{row['value']:g}",
            row["label"],
            row["source"],
            ", ".join(f"{name.split('_', maxsplit=1)[0]} {row[name]}" for name in targets if row[name]),
            f"{row['scored_at']:%Y-%m-%d %H:%M:%S}",
            row["comment"],
        )
        for row in scores.to_dicts()
    ]
    print_table(("score", "name", "value", "label", "source", "for", "given", "comment"), rows, numbers=("value",))


@app.command()
def delete(
    scores: Annotated[list[str], typer.Argument(metavar="SCORE…", help="Keys of scores, as listed.")],
    data_dir: DataDirOption = None,
) -> None:
    """Delete scores; the episodes that they scored are converted again.

    Example: `spanloop scores delete 0a8b6c1d2e3f40516273849506a7b8c9`
    """
    from spanloop.store import connect
    from spanloop.store.scores import delete_scores

    with connect(data_directory(data_dir), start=True) as store:
        delete_scores(store, scores)


def _newest(store: "Store", limit: int, **targets: str) -> "pl.DataFrame":
    """Return the newest scores. Without targets try a fast query first, which is complete if it fills ``limit``."""
    if not any(targets.values()):
        newest = store.query("scores_newest", limit=limit)
        if newest.height == limit:
            return newest
    return store.query("scores_list", limit=limit, **targets)
