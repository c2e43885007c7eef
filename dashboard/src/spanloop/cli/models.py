"""``spanloop models``: what can be trained and served."""

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from . import health
from .console import err, out, print_table
from .options import DataDirOption, ModelArgument, command, data_directory

if TYPE_CHECKING:
    from spanloop.store import DataDir

_POLL_S: Final = 0.5

app = typer.Typer(help="List, add and deploy model versions.", no_args_is_help=True)


@app.command("list")
def list_models(data_dir: DataDirOption = None) -> None:
    """Show every version: whether it is served, its parent and the job that made it.

    Example: `spanloop models list`
    """
    from spanloop.training.registry import Registry

    directory = data_directory(data_dir)
    versions = Registry(directory).list()
    if not versions:
        hint = command("models add NAME FOLDER", directory)
        err.print(f"no models yet; add a Hugging Face folder with: {hint}", markup=False)
        return
    engine = health.engine(directory)
    states = {engine.model: engine.state} if engine else {}
    print_table(
        ("model", "state", "parent", "job", "made (UTC)", "folder"),
        (
            (
                version.reference,
                states.get(version.reference, ""),
                version.parent or "",
                version.job_id or "",
                f"{version.created_at:%Y-%m-%d %H:%M}",
                str(version.path),
            )
            for version in versions
        ),
    )


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="What to call it.")],
    folder: Annotated[Path, typer.Argument(help="A Hugging Face model folder.", exists=True, file_okay=False)],
    data_dir: DataDirOption = None,
) -> None:
    """Register a Hugging Face model folder as the next version of NAME; the folder is copied.

    Example: `spanloop models add smol ./SmolLM2-135M-Instruct`
    """
    from spanloop.training.registry import Registry

    with err.status("copying the model's files"):
        version = Registry(data_directory(data_dir)).add(name, folder)
    out.print(version.reference, markup=False)
    if not _has_chat_template(folder):
        err.print(
            f"{folder} has no chat template, so it can be trained further but not served.\n"
            "  next: put the model's chat_template.jinja into the folder and add it again",
            markup=False,
        )


@app.command()
def deploy(model: ModelArgument, data_dir: DataDirOption = None) -> None:
    """Serve a version behind the gateway; requests wait for it instead of failing.

    Example: `spanloop models deploy smol@v2`
    """
    out.print(f"{deploy_with_progress(data_directory(data_dir), model)} answers", markup=False)


def deploy_with_progress(data_dir: "DataDir", model: str) -> str:
    """Deploy ``model`` and show meanwhile how far the engine is; returns its ``name@version``.

    Raises:
        SpanloopError: Whatever ``spanloop.training.deploy`` refuses.
    """
    from rich.markup import escape

    from spanloop.training.deploy import deploy as deploy_version

    done = threading.Event()
    began_s = time.monotonic()
    with err.status(f"deploying {escape(model)}") as spinner:

        def show() -> None:
            while not done.wait(_POLL_S):
                engine = health.engine(data_dir)
                state = f": the engine is {engine.state}" if engine else ""
                spinner.update(f"deploying {escape(model)}{state} [dim]{time.monotonic() - began_s:.0f} s[/dim]")

        watcher = threading.Thread(target=show, daemon=True)
        watcher.start()
        try:
            return deploy_version(data_dir, model).reference
        finally:
            done.set()
            watcher.join()


def _has_chat_template(folder: Path) -> bool:
    """Whether the tokenizer knows how to write a conversation, by any of the places that transformers reads."""
    if any(
        (folder / name).exists() for name in ("chat_template.jinja", "chat_template.json", "additional_chat_templates")
    ):
        return True
    try:
        return bool(json.loads((folder / "tokenizer_config.json").read_text()).get("chat_template"))
    except (OSError, ValueError, AttributeError):
        return False
