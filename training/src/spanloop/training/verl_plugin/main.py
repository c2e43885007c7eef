"""Entry point of the verl subprocess: ``python -m spanloop.training.verl_plugin.main <plan.json>``.

verl reads its environment on import, so this module sets the environment first and imports verl last. A failure is
written to ``failure.json`` (type, message, next step) for ``run_job``, and as a traceback to the log.
"""

import ctypes
import json
import os
import secrets
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from spanloop.training.recipes.base import LearnsFrom
from spanloop.training.spec.choices import Device
from spanloop.training.verl_plugin.early_stopping import describe_failure

from .compute import resolve_compute
from .train_plan import TrainPlan

TENSORBOARD_NAME = "tensorboard"
"""Folder of a job's folder."""
_PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""
_CPU_PLATFORM = "spanloop.training.verl_plugin.engine.cpu_platform"


def prepare_environment(plan: TrainPlan) -> None:
    """Set the environment variables that Ray, torch and tokenizers read on import."""
    settings = {
        "TQDM_DISABLE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "TOKENIZERS_PARALLELISM": "false",
        "VERL_FILE_LOGGER_PATH": str(plan.metrics_path),
        "VERL_LOGGING_LEVEL": "WARNING",
        "TENSORBOARD_DIR": str(plan.metrics_path.parent / TENSORBOARD_NAME),
        "WANDB_DIR": str(plan.metrics_path.parent),
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "TRANSFER_QUEUE_ENABLE": "1",
        "HYDRA_FULL_ERROR": "1",
        "HF_HUB_OFFLINE": "1",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "TQ_LOGGING_LEVEL": "ERROR",
        "TQ_NUM_THREADS": str(plan.threads),
        "RAY_COLOR_PREFIX": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        # verl's worker blocks inside an async actor by design; torch's export triggers torch's own warning.
        "RAY_WARN_BLOCKING_GET_INSIDE_ASYNC": "0",
        "TORCH_LOGS": "-torch.fx._symbolic_trace",
    }
    if not plan.run.ray_address:
        settings |= {
            "RAY_ADDRESS": "local",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            # Ray would start an idle worker for each logical CPU: seconds of import time on a small machine.
            "RAY_prestart_worker_first_driver": "0",
            "RAY_enable_worker_prestart": "0",
        }
    os.environ.update(settings)


def prepare_device(device: Device) -> None:
    """Set the environment variables that verl reads on import, for a resolved device."""
    if device is Device.CPU:
        os.environ |= {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": _CPU_PLATFORM, "CUDA_VISIBLE_DEVICES": ""}


def die_with_parent() -> None:
    """Let the kernel kill this process when ``run_job`` is killed; Ray's daemons then end with this one."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


def train(plan: TrainPlan) -> None:
    """Set the environment, resolve the device and train; verl must not have been imported for another device."""
    prepare_environment(plan)
    plan = resolve_compute(plan)
    precision = f"bfloat16 {'on' if plan.bfloat16 else 'off'}"
    print(f"verl computes on {plan.device}, {precision}, {plan.micro_batch_tokens:,} tokens in a pass", flush=True)  # noqa: T201 - the job's log
    prepare_device(plan.device)
    trainer_of(plan.recipe.learns_from)(plan)


def trainer_of(data: LearnsFrom) -> Callable[[TrainPlan], None]:
    """Return the function that trains a plan whose recipe learns from ``data``; it imports verl."""
    match data:
        case LearnsFrom.ROWS:
            from .policy_gradient import train  # noqa: PLC0415 - after the environment
        case LearnsFrom.PAIRS:
            from .supervised.dpo import train  # noqa: PLC0415
        case LearnsFrom.TEXT:
            from .supervised.sft import train  # noqa: PLC0415
    return train


def main(plan_path: Path) -> int:
    """Run the plan and return the exit status."""
    plan = TrainPlan.model_validate_json(plan_path.read_bytes())
    die_with_parent()
    # Before torch is imported, which resolving the device auto does.
    os.environ["OMP_NUM_THREADS"] = str(plan.threads)
    # Waiting OpenMP threads spin by default, on a core that other work needs: three to four times slower beside one
    # busy process.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    try:
        train(plan)
    except Exception as error:  # noqa: BLE001 - the process's boundary: the parent turns the file into a JobError
        traceback.print_exc()
        plan.failure_path.write_text(json.dumps(describe_failure(error)))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
