"""The ``spanloop demo`` command: choose a demo and run it in its data directory."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spanloop.cli.console import err
from spanloop.cli.options import data_directory
from spanloop.foundation.errors import ConfigurationError
from spanloop.runtime.command_line import command_line
from spanloop.runtime.environment_checks import require_everything

if TYPE_CHECKING:
    from .learning_demo import DemoSettings

_INTERRUPTED = 130


def demo(
    tiny: Annotated[
        bool,
        typer.Option("--tiny", help="Run the whole loop in about two minutes with a toy model; claims no learning."),
    ] = False,
    model: Annotated[
        str, typer.Option(help="Model to train: smollm2, a hub id, pypi:PACKAGE, or a folder. It must call tools.")
    ] = "smollm2",
    seed: Annotated[int, typer.Option(help="Seed of tasks and training.", min=0)] = 0,
    rounds: Annotated[
        int, typer.Option(help="How often the champion attempts tasks and is trained on them.", min=1)
    ] = 2,
    serve: Annotated[
        bool, typer.Option("--serve/--no-serve", help="Keep the dashboard and the trained model running afterwards.")
    ] = True,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the data of an earlier demo first.")] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            help="Directory for the demo's data.",
            show_default="a directory in the user's cache; with --tiny a temporary one",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            help="With --tiny: run on the services that this configuration file and the environment name, instead of "
            "starting some. Their gateway serves the toy model afterwards.",
        ),
    ] = None,
    ray_address: Annotated[
        str,
        typer.Option(
            "--ray-address",
            metavar="HOST:PORT",
            help="With --config: train on this Ray cluster, instead of one that the job starts.",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Watch an agent fail, train its model on its own traces, and see it do better.

    A small real model (SmolLM2, 135 million parameters) runs the agent in examples/office, whose app.toml is run by
    `spanloop loop`: it is trained on the agent's traces (SFT on the successful ones, then Dr. GRPO) and evaluated on
    test tasks before and after each training. The promotion rule decides whether the new version is served, and is
    trained in the next round. The demo takes about 21 minutes on two cores with bfloat16 instructions (avx512_bf16
    or amx_bf16 in lscpu), much longer on others, and longer with more rounds. Ctrl-C loses nothing: the same command
    continues.

    Exit code 1 when a check fails.

    Example: `spanloop demo --no-serve --seed 1`
    """
    if config is not None and not tiny:
        raise typer.BadParameter("only the demo with --tiny runs on other services", param_hint="--config")
    if ray_address and config is None:
        raise typer.BadParameter(
            "only the demo on other services (--config) uses a Ray cluster", param_hint="--ray-address"
        )
    require_everything(serving=config is None)
    if tiny:
        _tiny(data_dir, config, ray_address)
    else:
        from .learning_demo import DemoSettings

        settings = DemoSettings(source=model, seed=seed, rounds=rounds)
        learn(data_dir or _default_directory(seed), settings, serve=serve, fresh=fresh)


def _default_directory(seed: int) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "spanloop" / f"demo-{seed}"


def learn(path: Path, settings: "DemoSettings", *, serve: bool, fresh: bool) -> None:
    """Run the learning demo in the data directory ``path``.

    Args:
        path: The data directory; created if missing. An unfinished demo in it continues.
        settings: An unfinished demo must have the same, but for the rounds.
        serve: Keep everything running afterwards, until Ctrl-C.
        fresh: Delete an earlier demo first.

    Raises:
        SpanloopError: A step failed; the same call continues.
        Exit: With 1 when a claim does not hold, with 130 after Ctrl-C.
    """
    from spanloop.foundation.paths import DataDir

    from .learning_demo import learn as run_demo

    if fresh and path.exists():
        _delete_demo(path)
    directory = data_directory(path)
    try:
        ok = run_demo(directory, settings, serve=serve)
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    finally:
        err.print(f"look at it again with: {command_line('up', DataDir(path))}", markup=False)
    if not ok:
        raise typer.Exit(1)


def _delete_demo(path: Path) -> None:
    """Delete an earlier demo's data directory.

    Raises:
        ConfigurationError: The directory holds no demo.
        AlreadyRunningError: A spanloop runs on it.
    """
    from spanloop.foundation.paths import DataDir
    from spanloop.runtime.supervisor import up_lock

    if not (path / "demo").is_dir():
        raise ConfigurationError(
            f"{path} holds no demo, so --fresh does not delete it.",
            next_step="Name an empty directory, or delete it yourself.",
        )
    with up_lock(DataDir(path)):
        shutil.rmtree(path)


def _tiny(data_dir: Path | None, config: Path | None, ray_address: str) -> None:
    from spanloop.foundation.paths import DataDir

    from .tiny_loop import run_tiny, run_tiny_on_services

    path = data_dir or Path(tempfile.mkdtemp(prefix="spanloop-demo-"))
    is_retained = True
    try:
        directory = data_directory(path, config)
        ok = run_tiny(directory) if config is None else run_tiny_on_services(directory, ray_address)
        is_retained = data_dir is not None or not ok
    except KeyboardInterrupt:
        is_retained = data_dir is not None
        raise
    finally:
        if is_retained:
            err.print(f"look at it with: {command_line('up', DataDir(path))}", markup=False)
        else:
            shutil.rmtree(path, ignore_errors=True)
    if not ok:
        raise typer.Exit(1)
