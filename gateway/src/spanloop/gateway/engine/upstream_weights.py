"""Which weights an upstream that the gateway did not start has loaded, so that a restarted gateway names them rightly.

Invariant: weights are named only when the log-probabilities of a fixed prompt say so. A deployment is on disk before
its weights are loaded; one that was interrupted leaves weights without a version, until it is repeated.
"""

import asyncio
import json
import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

from spanloop.foundation.errors import ConfigurationError, SpanloopError
from spanloop.foundation.paths import DataDir

from .deployment import Deployment, ModelFolder
from .vllm_server import Engine

_log: Final = logging.getLogger(__name__)
EXTERNAL_VERSION: Final = "external"
"""The version of a model that an external server serves and that was not deployed by this gateway."""

Logprobs = tuple[float, ...]
"""Of a fixed prompt (`VllmApi.probe`), in nats."""


@dataclass(frozen=True, slots=True)
class LoadedWeights:
    """The last deployment to an upstream."""

    url: str
    """The upstream."""
    original: Logprobs
    """Under the weights that the upstream was started with."""
    before: Logprobs
    """Under the weights before this deployment."""
    deployment: Deployment
    after: Logprobs = ()
    """Under its weights; empty while they are being loaded."""


class UpstreamWeights:
    """``gateway/upstream_weights.json``, and one such file for each further upstream.

    Args:
        data_dir: The data directory.
        index: Of the upstream.
    """

    def __init__(self, data_dir: DataDir, index: int = 0) -> None:
        self._data_dir = data_dir
        self._path = data_dir.gateway / f"upstream_weights{f'-{index}' if index else ''}.json"

    def read(self, url: str) -> LoadedWeights | None:
        """Return the last deployment to ``url``; None without one, and when the file is damaged."""
        try:
            fields = cast("dict[str, Any]", json.loads(self._path.read_text(encoding="utf-8")))
            logprobs = {name: tuple(map(float, fields[name])) for name in ("original", "before", "after")}
            loaded = LoadedWeights(str(fields["url"]), deployment=Deployment.parse(fields["deployment"]), **logprobs)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError, SpanloopError) as error:
            _log.warning("%s is damaged, so the upstream's weights have no version: %s", self._path, error)
            return None
        return loaded if loaded.url == url else None

    def begin(self, url: str, deployment: Deployment, now: Logprobs) -> LoadedWeights:
        """Record that a deployment begins, before its weights are loaded.

        Args:
            url: The upstream.
            deployment: Of these weights.
            now: Under the loaded weights.

        Raises:
            DataDirectoryError: It cannot be stored.
        """
        last = self.read(url)
        began = LoadedWeights(url, now if last is None else last.original, now, deployment)
        if last is not None and not last.after and last.deployment == deployment:
            # Interrupted: its weights may be loaded already, and then loading them again changes nothing.
            began = replace(began, before=last.before)
        self.write(began)
        return began

    def write(self, loaded: LoadedWeights) -> None:
        """Replace the file atomically and durably; it raises as `begin`."""
        self._data_dir.write(self._path, json.dumps(asdict(loaded)) + "\n")

    async def served_by(self, engine: Engine) -> tuple[Deployment, ModelFolder | None]:
        """Return the deployment that an external server serves, and its folder if readable.

        Raises:
            ServiceError: The server does not answer.
            ConfigurationError: The folder of the loaded weights is gone.
        """
        api, served_name = engine.api, engine.served_name
        name, _, version = served_name.partition("@")
        loaded = await asyncio.to_thread(self.read, api.base_url)
        if loaded is not None:
            logprobs = await api.probe(served_name)
            if logprobs == loaded.after:
                return loaded.deployment, await asyncio.to_thread(ModelFolder.read, Path(loaded.deployment.path))
            # The served name is that of the weights that the server was started with.
            version = version if logprobs == loaded.original else ""
        root = await api.served_root()
        try:
            folder = await asyncio.to_thread(ModelFolder.read, Path(root))
        except ConfigurationError:
            # Its folder is not on this machine: chat works, hot swaps do not.
            return Deployment(name, version or EXTERNAL_VERSION, ""), None
        return Deployment(name, version or EXTERNAL_VERSION, root), folder


class FixedWeights(UpstreamWeights):
    """Of an external server that serves one deployment already, under any name.

    Args:
        data_dir: The data directory.
        deployment: What it serves.
    """

    def __init__(self, data_dir: DataDir, deployment: Deployment) -> None:
        super().__init__(data_dir)
        self._deployment = deployment

    async def served_by(self, engine: Engine) -> tuple[Deployment, ModelFolder | None]:
        """Return the deployment."""
        del engine
        return self._deployment, None
