"""The tiny demo on services that run already: do they answer, and has their pipeline converted the demo's spans?"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx

from spanloop.foundation.errors import NotRunningError
from spanloop.foundation.keys.service_keys import trusted_certificates

from .tiny_checks import read_report

if TYPE_CHECKING:
    from spanloop.foundation.paths import DataDir
    from spanloop.store import Store

    from .stages import StageDisplay

_HEALTH_TIMEOUT_S: Final = 10.0
_CONVERTED_TIMEOUT_S: Final = 180.0
_POLL_S: Final = 1.0


def check_services(data_dir: "DataDir") -> None:
    """Check that collector, gateway and ClickHouse answer.

    Raises:
        NotRunningError: There is no collector or no gateway, or it does not answer.
        SpanloopError: ClickHouse does not answer.
    """
    from spanloop.store import connect

    for service in ("collector", "gateway"):
        _check_service(data_dir, service)
    with connect(data_dir):
        pass


def _check_service(data_dir: "DataDir", service: str) -> None:
    address = data_dir.find(service)
    if address is None:
        raise NotRunningError(
            f"No setting names a {service}, and none runs on the data directory {data_dir.path}.",
            next_step=f"Name it as {service}_url under [services] of the configuration file, or start it.",
        )
    try:
        with httpx.Client(
            timeout=_HEALTH_TIMEOUT_S, trust_env=False, verify=trusted_certificates(address.url)
        ) as client:
            client.get(f"{address.url}/healthz").raise_for_status()
    except httpx.HTTPError as error:
        raise NotRunningError(
            f"The {service} at {address.url} does not answer: {error}.", next_step="Start it, or mend its address."
        ) from error


def await_conversion(data_dir: "DataDir", stages: "StageDisplay", model: str, reports: list[Path]) -> None:
    """Wait for the pipeline as a stage of the demo; it raises as `connect`."""
    from spanloop.store import connect

    with stages.stage("the pipeline converts spans into transitions"), connect(data_dir) as store:
        transitions = wait_until_converted(store, model, reports)
        stages.note(f"{transitions} transitions")


def wait_until_converted(store: "Store", model: str, report_paths: list[Path]) -> int:
    """Wait until every reported call is a transition with tokens and the reward of its attempt; return their number.

    After 180 s it returns without an error: ``tiny_checks`` then reports what is missing.
    """
    rewards = {
        response_id: attempt.reward
        for path in report_paths
        for attempt in read_report(path)
        for response_id in attempt.response_ids
    }
    deadline_s = time.monotonic() + _CONVERTED_TIMEOUT_S
    while True:
        rows = store.query("demo_transitions", model=model).select(
            "response_id", "episode_reward", "response_token_ids"
        )
        converted = sum(
            rewards.get(response_id) == reward and bool(tokens) for response_id, reward, tokens in rows.iter_rows()
        )
        if converted == len(rewards) or time.monotonic() > deadline_s:
            return rows.height
        time.sleep(_POLL_S)
