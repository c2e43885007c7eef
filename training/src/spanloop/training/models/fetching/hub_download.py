# pyright: basic
"""Download models from a Hugging Face hub: the public one, or the one that ``HF_ENDPOINT`` names."""

import os
import shutil
import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from spanloop.foundation.errors import ConfigurationError, ServiceError

_HUB_TIMEOUT_S: Final = 4.0
_ALLOWED: Final = ("*.safetensors", "*.json", "*.jinja", "*.model", "merges.txt", "vocab.txt", "LICENSE*")
_IGNORED: Final = ("*/*",)
"""Subfolders of a repository contain the same weights for other runtimes."""


def hub_has_model(hub_id: str, timeout_s: float = _HUB_TIMEOUT_S) -> bool:
    """Whether the hub confirms within ``timeout_s`` that it has this model."""
    if find_spec("huggingface_hub") is None:
        return False
    confirmations: list[bool] = []

    def request_info() -> None:
        from huggingface_hub import HfApi  # noqa: PLC0415 - half a second, needed only here
        from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled  # noqa: PLC0415

        try:
            HfApi().model_info(hub_id, timeout=timeout_s)
        except (HfHubHTTPError, OfflineModeIsEnabled, OSError, _transport_error()):
            return
        confirmations.append(True)

    # In a thread, because DNS resolution has no timeout.
    thread = threading.Thread(target=request_info, daemon=True)
    thread.start()
    thread.join(timeout_s)
    return bool(confirmations)


def download_from_hub(hub_id: str, target: Path, on_progress: Callable[[str], None]) -> None:
    """Download a repository's weights, tokenizer and configuration into ``target``; resumes a partial download.

    Raises:
        ConfigurationError: The hub has no such model or requires a token, or ``huggingface_hub`` is missing.
        ServiceError: The hub is unreachable.
    """
    if find_spec("huggingface_hub") is None:
        raise ConfigurationError(
            f"Downloading {hub_id} needs huggingface_hub, which is not installed.",
            next_step=f"{sys.executable} -m pip install '/path/to/spanloop[train]'",
        )
    from huggingface_hub import constants, snapshot_download  # noqa: PLC0415
    from huggingface_hub.errors import (  # noqa: PLC0415
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    on_progress(f"downloading {hub_id} from {constants.ENDPOINT}")
    try:
        snapshot_download(hub_id, local_dir=target, allow_patterns=list(_ALLOWED), ignore_patterns=list(_IGNORED))
    except GatedRepoError as error:
        raise ConfigurationError(
            f"{constants.ENDPOINT} restricts {hub_id} to accounts with granted access.",
            next_step=f"Request access on {constants.ENDPOINT}/{hub_id}, set HF_TOKEN, and run the same command again.",
        ) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ConfigurationError(
            f"{constants.ENDPOINT} has no model {hub_id} that this account can access.",
            next_step="Check the spelling; for a private model set HF_TOKEN; for a local model pass its folder.",
        ) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, _transport_error(), OSError) as error:
        raise ServiceError(
            f"{hub_id} could not be downloaded from {constants.ENDPOINT}: {_first_line(error)}",
            next_step=_unreachable_step(),
        ) from error
    # Metadata of the downloader, not part of the model.
    shutil.rmtree(target / ".cache", ignore_errors=True)


def _unreachable_step() -> str:
    step = (
        "Check the network, or name another hub in HF_ENDPOINT, and run the same command again; or pass a folder on "
        "this machine; or smollm2, which is also on PyPI."
    )
    offline = [name for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") if os.environ.get(name)]
    return f"Unset {offline[0]}, which forbids downloads. {step}" if offline else step


def _transport_error() -> type[Exception]:
    import httpx  # noqa: PLC0415

    return httpx.HTTPError


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
