"""Resolve a job's device. Imports torch, so only the verl subprocess calls it."""

from spanloop.semconv.errors import JobError

from .job_spec import Device


def resolve_device(device: Device) -> Device:
    """Return CPU or CUDA for a requested device, which may be ``auto``.

    One CUDA device runs the whole job, so batches need not divide by a number of ranks and verl adds no padding rows.

    Raises:
        JobError: CUDA was requested and torch finds none.
    """
    if device is Device.CPU:
        return device
    import torch  # noqa: PLC0415 - seconds

    if torch.cuda.is_available():
        return Device.CUDA
    if device is Device.CUDA:
        raise JobError(
            f"The job asks for CUDA and torch {torch.__version__} sees no CUDA device.",
            next_step="Install a CUDA build of torch, or submit with device auto or cpu.",
        )
    return Device.CPU
