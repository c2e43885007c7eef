"""``gateway/further_models.json``: the last deployment of each model that is served beside the first one."""

import json
from dataclasses import asdict
from typing import Final

from spanloop.foundation.errors import ConfigurationError, SpanloopError
from spanloop.foundation.paths import DataDir

from ..engine.deployment import Deployment, LastDeployment, relocated


class FurtherDeployments:
    """The file; without it there is no further model.

    Args:
        data_dir: The data directory.
    """

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        self.path: Final = data_dir.gateway / "further_models.json"

    def read(self) -> tuple[Deployment, ...]:
        """Return the deployments, oldest model first.

        Raises:
            ConfigurationError: The file is damaged.
        """
        try:
            documents = json.loads(self.path.read_text(encoding="utf-8"))
            deployments = [Deployment.parse(document) for document in documents]
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, TypeError, SpanloopError) as error:
            raise ConfigurationError(
                f"{self.path} is damaged: {error}",
                next_step="Remove it, then deploy again: spanloop models deploy NAME --beside",
            ) from error
        return tuple(relocated(deployment, self._data_dir) for deployment in deployments)

    def put(self, deployment: Deployment) -> None:
        """Replace the deployment of its model atomically and durably; DataDirectoryError: it cannot be written."""
        self._write({**self._by_name(), deployment.name: deployment})

    def remove(self, name: str) -> None:
        """Remove the deployment of a model; it raises as `put`."""
        deployments = self._by_name()
        if deployments.pop(name, None) is not None:
            self._write(deployments)

    def of(self, name: str) -> LastDeployment:
        """Return the last deployment of one model."""
        return _OfOneModel(self, name)

    def _by_name(self) -> dict[str, Deployment]:
        return {deployment.name: deployment for deployment in self.read()}

    def _write(self, deployments: dict[str, Deployment]) -> None:
        self._data_dir.write(self.path, json.dumps(list(map(asdict, deployments.values())), indent=1) + "\n")


class _OfOneModel:
    """The last deployment of one model."""

    def __init__(self, file: FurtherDeployments, name: str) -> None:
        self._file = file
        self._name = name

    def read(self) -> Deployment | None:
        return next((each for each in self._file.read() if each.name == self._name), None)

    def write(self, deployment: Deployment) -> None:
        self._file.put(deployment)
