"""``spanloop marks``: mark episodes for training, take marks back and list them."""

from typing import Annotated

import typer

from ..console import err, out, print_table
from ..options import DataDirOption, data_directory
from .scores import EpisodeOption, ResponseOption, SessionOption, TraceOption, store_score

app = typer.Typer(help="Mark episodes, by which training jobs select them.", no_args_is_help=True)

LabelArgument = Annotated[str, typer.Argument(metavar="LABEL", help="The mark, such as good.")]
CommentOption = Annotated[str, typer.Option(help="The reason.")]
SourceOption = Annotated[str, typer.Option(help="Who or what gives the mark.")]


@app.command()
def add(
    label: LabelArgument,
    episode: EpisodeOption = "",
    trace: TraceOption = "",
    response: ResponseOption = "",
    session: SessionOption = "",
    comment: CommentOption = "",
    source: SourceOption = "person",
    data_dir: DataDirOption = None,
) -> None:
    """Mark an episode, found by its id, a trace, a response or a session.

    The episode is converted again, and jobs with `--marks LABEL` train on it. It must be stored already.

    Example: `spanloop marks add good --episode 4bf92f3577b34da6a3ce929d0e0e4736`
    """
    targets = {"episode_id": episode, "trace_id": trace, "response_id": response, "session_id": session}
    out.print(_mark(data_dir, label, 1.0, comment, source, targets), markup=False)


@app.command()
def remove(
    label: LabelArgument,
    episode: EpisodeOption = "",
    trace: TraceOption = "",
    response: ResponseOption = "",
    session: SessionOption = "",
    comment: CommentOption = "",
    source: SourceOption = "person",
    data_dir: DataDirOption = None,
) -> None:
    """Take a mark of an episode back, whoever gave it.

    Example: `spanloop marks remove good --episode 4bf92f3577b34da6a3ce929d0e0e4736`
    """
    targets = {"episode_id": episode, "trace_id": trace, "response_id": response, "session_id": session}
    out.print(_mark(data_dir, label, 0.0, comment, source, targets), markup=False)


@app.command("list")
def list_marks(data_dir: DataDirOption = None) -> None:
    """List the marks of converted episodes.

    Example: `spanloop marks list`
    """
    from spanloop.store import connect

    with connect(data_directory(data_dir), start=True) as store:
        marks = store.query("marks_list")
    if marks.is_empty():
        err.print("no marks")
        return
    rows = [(label, str(episodes), f"{newest:%Y-%m-%d %H:%M:%S}") for label, episodes, newest in marks.iter_rows()]
    print_table(("mark", "episodes", "newest episode"), rows, numbers=("episodes",))


def _mark(data_dir: DataDirOption, label: str, value: float, comment: str, source: str, targets: dict[str, str]) -> str:
    from spanloop.semconv.attributes import MARK_NAME

    fields = {"name": MARK_NAME, "label": label.strip(), "value": value, "comment": comment, "source": source}
    return store_score(data_dir, fields | targets, what="mark")
