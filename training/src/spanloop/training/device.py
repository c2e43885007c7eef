"""CPU or GPU, by detection. Imports torch, so only the verl subprocess asks."""

from spanloop.semconv.errors import JobError

from .job_spec import Device


def resolve_device(device: Device) -> Device:
    """CPU or CUDA for a job with this ``device``, which may be ``auto``.

    One CUDA device carries the whole job: batches need not divide by a number of ranks, so no row is ever invented.

    Raises:
        JobError: CUDA was asked for and torch sees none.
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
