# pyright: basic
"""Models from a Hugging Face hub: the public one, or the one that ``HF_ENDPOINT`` names."""

import os
import shutil
import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from spanloop.semconv.errors import ConfigurationError, ServiceError

_ANSWER_TIMEOUT_S: Final = 4.0
_FILES: Final = ("*.safetensors", "*.json", "*.jinja", "*.model", "merges.txt", "vocab.txt", "LICENSE*")
_NOT: Final = ("*/*",)
"""Folders within a repository hold the same weights for other runtimes."""


def hub_has_model(hub_id: str, timeout_s: float = _ANSWER_TIMEOUT_S) -> bool:
    """Whether a hub has this model and says so within ``timeout_s``."""
    if find_spec("huggingface_hub") is None:
        return False
    answers: list[bool] = []

    def ask() -> None:
        from huggingface_hub import HfApi  # noqa: PLC0415 - half a second, needed only here
        from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled  # noqa: PLC0415

        try:
            HfApi().model_info(hub_id, timeout=timeout_s)
        except (HfHubHTTPError, OfflineModeIsEnabled, OSError, _transport_error()):
            return
        answers.append(True)

    # In a thread, because a resolver that does not answer knows no timeout.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(timeout_s)
    return bool(answers)


def download(hub_id: str, target: Path, say: Callable[[str], None]) -> None:
    """Download a repository's weights, tokenizer and configuration into ``target``; goes on where it stopped.

    Raises:
        ConfigurationError: The hub has no such model, or wants a token; or ``huggingface_hub`` is missing.
        ServiceError: No hub answers.
    """
    if find_spec("huggingface_hub") is None:
        raise ConfigurationError(
            f"Downloading {hub_id} needs huggingface_hub, not installed here.",
            next_step=f"{sys.executable} -m pip install 'spanloop[train]'",
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

    say(f"downloading {hub_id} from {constants.ENDPOINT}")
    try:
        snapshot_download(hub_id, local_dir=target, allow_patterns=list(_FILES), ignore_patterns=list(_NOT))
    except GatedRepoError as error:
        raise ConfigurationError(
            f"{constants.ENDPOINT} gives {hub_id} only to people who were granted access.",
            next_step=f"Ask for access on {constants.ENDPOINT}/{hub_id}, set HF_TOKEN, and run the same command again.",
        ) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ConfigurationError(
            f"{constants.ENDPOINT} has no model {hub_id} that this account may see.",
            next_step="Check the spelling; for a private model set HF_TOKEN; for a local one name its folder.",
        ) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, _transport_error(), OSError) as error:
        raise ServiceError(
            f"{hub_id} could not be downloaded from {constants.ENDPOINT}: {_first_line(error)}",
            next_step=_unreachable_step(),
        ) from error
    # The downloader's notes on what it has; they are no part of the model.
    shutil.rmtree(target / ".cache", ignore_errors=True)


def _unreachable_step() -> str:
    step = (
        "Check the network, or name another hub in HF_ENDPOINT, and run the same command again; or give a folder on "
        "this machine; or smollm2, which PyPI has too."
    )
    offline = [name for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") if os.environ.get(name)]
    return f"Unset {offline[0]}, which forbids downloads. {step}" if offline else step


def _transport_error() -> type[Exception]:
    import httpx  # noqa: PLC0415

    return httpx.HTTPError


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
