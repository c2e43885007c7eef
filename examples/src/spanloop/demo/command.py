"""The command itself; each demo is a module of its own."""

import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spanloop.cli.console import err, out
from spanloop.cli.options import data_directory
from spanloop.runtime.command_line import command_line
from spanloop.runtime.environment_checks import require_everything
from spanloop.semconv.errors import ConfigurationError

if TYPE_CHECKING:
    from .learn import Recipe
    from .ledger import Ledger

_INTERRUPTED = 130


def demo(
    tiny: Annotated[
        bool, typer.Option("--tiny", help="The whole loop in about two minutes; claims no learning.")
    ] = False,
    model: Annotated[
        str,
        typer.Option(help="What to train: smollm2, a hub id, pypi:PACKAGE, or a folder. It must call tools."),
    ] = "smollm2",
    seed: Annotated[int, typer.Option(help="Of tasks and training.", min=0)] = 0,
    serve: Annotated[
        bool, typer.Option("--serve/--no-serve", help="Keep the dashboard and the trained model up afterwards.")
    ] = True,
    fresh: Annotated[bool, typer.Option("--fresh", help="Throw away what an earlier demo did here.")] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            help="Keep the data here.",
            show_default="a directory of the demo's own in the user's cache; with --tiny a scratch one",
        ),
    ] = None,
) -> None:
    """Watch an agent fail, train its model on its own traces, and see it do better.

    A small real model (SmolLM2, 135 million parameters) works in examples/office, is trained on what it did (SFT on its
    successes, then GRPO), and is evaluated on test tasks before and after each. Twenty to thirty minutes on two cores
    with instructions for bfloat16 (avx512_bf16, amx_bf16; lscpu tells), much longer on others.
    Ctrl-C at any moment loses nothing: the same command goes on.

    Exit code 1 when something is not as it should be.

    Example: `spanloop demo --no-serve --seed 1`
    """
    require_everything()
    if tiny:
        _tiny(data_dir)
    else:
        from .learn import Recipe

        learn(data_dir or _own_directory(seed), Recipe(source=model, seed=seed), serve=serve, fresh=fresh)


def _own_directory(seed: int) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "spanloop" / f"demo-{seed}"


def learn(path: Path, recipe: "Recipe", *, serve: bool, fresh: bool) -> None:
    """Run the demo that learns in the data directory ``path``.

    Args:
        path: Made when it is not there; a demo that was begun there goes on.
        recipe: What to do.
        serve: Keep everything up afterwards, until Ctrl-C.
        fresh: Remove an earlier demo first.

    Raises:
        SpanloopError: A stage failed; the same call goes on.
        Exit: With 1 when a claim does not hold, with 130 after Ctrl-C.
    """
    from spanloop.datadir import DataDir
    from spanloop.runtime.services import Ports
    from spanloop.runtime.stack import running_stack

    from .learn import MODEL, Loop
    from .ledger import Ledger
    from .report import report
    from .stages import Stages

    if fresh and path.exists():
        _throw_away(path)
    directory = data_directory(path)
    ledger = Ledger(directory.path / "demo" / "done.json", recipe._asdict())
    stages = Stages()
    err.print(f"the demo's data: {directory.path}", markup=False)
    ok: bool | None = None
    try:
        with running_stack(directory, Ports.free(), stages.progress, pipeline=False) as supervisor:
            if (dashboard := directory.running("dashboard")) is not None:
                err.print(f"watch it: {dashboard.url}", markup=False)
            versions = Loop(directory, recipe, ledger, stages).run()
            ok = report(directory, MODEL, versions)
            out.print(f"\n{_duration(ledger)}", markup=False)
            if serve:
                if dashboard is not None:
                    out.print(f"the dashboard on this data: {dashboard.url}", markup=False)
                err.print("Ctrl-C ends it; the data stays")
                supervisor.watch(threading.Event())
    except KeyboardInterrupt:
        if ok is None:
            raise typer.Exit(_INTERRUPTED) from None
    finally:
        err.print(f"look at it again with: {command_line('up', DataDir(path))}", markup=False)
    if not ok:
        raise typer.Exit(1)


def _duration(ledger: "Ledger") -> str:
    """What the stages took, and what attempts took that were broken off, by whichever runs of the command."""
    by_length = sorted(ledger.seconds.items(), key=lambda each: -each[1])
    longest = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in by_length[:4])
    minutes = (sum(ledger.seconds.values()) + ledger.interrupted_s) / 60
    lost = f", {ledger.interrupted_s / 60:.1f} of them in stages that were broken off" if ledger.interrupted_s else ""
    return f"the demo took {minutes:.1f} minutes{lost}: {longest}"


def _throw_away(path: Path) -> None:
    """Remove an earlier demo.

    Raises:
        ConfigurationError: The directory is no demo's.
        AlreadyRunningError: Something runs on it.
    """
    from spanloop.datadir import DataDir
    from spanloop.runtime.supervisor import up_lock

    if not (path / "demo").is_dir():
        raise ConfigurationError(
            f"{path} holds no demo, so --fresh leaves it alone.", next_step="Name an empty directory, or remove it."
        )
    with up_lock(DataDir(path)):
        shutil.rmtree(path)


def _tiny(data_dir: Path | None) -> None:
    from spanloop.datadir import DataDir

    from .tiny_loop import run_tiny

    path = data_dir or Path(tempfile.mkdtemp(prefix="spanloop-demo-"))
    is_kept = True
    try:
        ok = run_tiny(data_directory(path))
        is_kept = data_dir is not None or not ok
    except KeyboardInterrupt:
        is_kept = data_dir is not None
        raise
    finally:
        if is_kept:
            err.print(f"look at it with: {command_line('up', DataDir(path))}", markup=False)
        else:
            shutil.rmtree(path, ignore_errors=True)
    if not ok:
        raise typer.Exit(1)
