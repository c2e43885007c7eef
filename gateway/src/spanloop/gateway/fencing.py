"""Fencing tokens of deployments: which job runner may still deploy.

Invariant: of each holder (a training job) only the newest runner deploys. A token is on disk before its deployment
begins, so that neither a restart of the gateway nor a slow runner brings older weights back. Deployments by a person
have no token and are not fenced.
"""

import json
from http import HTTPStatus
from typing import Any, Final, cast

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.leases import Fence
from spanloop.foundation.paths import DataDir

from .api_errors import ApiError

_MAX_HOLDERS: Final = 1000
"""A job deploys within its life; holders whose last deployment is so many holders ago have ended."""


class FencingTokens:
    """``gateway/fencing_tokens.json``: the newest token of each holder, in the order of their last deployments.

    Args:
        data_dir: The data directory.

    Raises:
        ConfigurationError: The file is damaged.
    """

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        self._path = data_dir.gateway / "fencing_tokens.json"
        self._newest = self._read()

    def accept(self, body: dict[str, Any]) -> None:
        """Remember the token of a deployment, if it has one.

        Raises:
            ApiError: 400 for something else than a token and its holder, 409 for one that is older than another.
            DataDirectoryError: It cannot be stored.
        """
        token, holder = body.get("token"), body.get("holder")
        if token is None:
            return
        if not isinstance(token, int) or isinstance(token, bool) or token < 0:
            raise ApiError(400, f"'token' must be an integer from 0, got {token!r}.", code="invalid_request")
        if not isinstance(holder, str) or not holder:
            raise ApiError(400, f"'token' needs its 'holder', got {holder!r}.", code="invalid_request")
        Fence(
            lambda: self._newest.get(holder),
            lambda refused, newest: ApiError(
                HTTPStatus.CONFLICT,
                f"The deployment of {holder} is stale: its fencing token is {refused}, and {newest} has deployed. "
                "Another process runs it by now; this one must stop.",
                code="stale_token",
            ),
            save=lambda newest: self._save(holder, newest),
        ).claim(token)

    def _save(self, holder: str, token: int) -> None:
        others = {name: value for name, value in self._newest.items() if name != holder}
        kept = dict([*others.items(), (holder, token)][-_MAX_HOLDERS:])
        self._data_dir.write(self._path, json.dumps(kept, indent=1) + "\n")
        self._newest = kept

    def _read(self) -> dict[str, int]:
        try:
            content: object = json.loads(self._path.read_text(encoding="utf-8"))
            return {str(holder): int(token) for holder, token in cast("dict[str, int]", content).items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"{self._path} is damaged: {error}.",
                next_step="Remove it when no job runs: then no process of an earlier lease can deploy.",
            ) from error
