"""``spanloop models``: what can be trained and served."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from .console import err, out
from .options import DataDirOption, ModelArgument, data_directory

app = typer.Typer(help="List, add and deploy model versions.", no_args_is_help=True)


@app.command("list")
def list_models(data_dir: DataDirOption = None) -> None:
    """Show every version with its parent and the job that made it."""
    from spanloop.training.registry import Registry

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("model", "parent", "job", "made", "folder"):
        table.add_column(title)
    versions = Registry(data_directory(data_dir)).list()
    for version in versions:
        made = f"{version.created_at:%Y-%m-%d %H:%M}"
        table.add_row(
            f"{version.name}@{version.version}", version.parent or "", version.job_id or "", made, str(version.path)
        )
    if not versions:
        err.print("no models yet; add one with: spanloop models add NAME FOLDER-OR-HUB-ID")
        return
    out.print(table)


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="What to call it.")],
    folder: Annotated[Path, typer.Argument(help="A Hugging Face model folder.", exists=True, file_okay=False)],
    data_dir: DataDirOption = None,
) -> None:
    """Register a Hugging Face model folder as the next version of NAME."""
    from spanloop.training.registry import Registry

    version = Registry(data_directory(data_dir)).add(name, folder)
    out.print(f"{version.name}@{version.version}")


@app.command()
def deploy(model: ModelArgument, data_dir: DataDirOption = None) -> None:
    """Serve a version behind the gateway; requests wait for it instead of failing."""
    from spanloop.training.deploy import deploy as deploy_version

    with err.status(f"deploying {model}"):
        deploy_version(data_directory(data_dir), model)
    out.print(f"{model} answers")
