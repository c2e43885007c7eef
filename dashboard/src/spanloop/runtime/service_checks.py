"""Checks of ``spanloop doctor`` on what settings name: addresses, keys, versions and clocks of roles on any host.

Invariant: a check changes nothing; the request that proves the scope ``ingest`` sends no span. A failed one names the
setting to correct or the command to run.
"""

import os
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.keys.service_keys import bearer, trusted_certificates
from spanloop.foundation.objects import object_storage
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import (
    CLICKHOUSE_URL_ENV,
    CONTROL_URL_ENV,
    FILE_SUFFIX,
    KEY_ENV,
    SERVICE_URL_ENVS,
    SHARED_DIR_ENV,
    ServiceAddress,
    configured_address,
    read_setting,
    shared_dir,
)

from .check import Check
from .status_report import process_name

if TYPE_CHECKING:
    import httpx

MAX_CLOCK_DIFFERENCE_S: Final = 2.0
"""Spans of several hosts are put into one order by their times."""
_TIMEOUT_S: Final = 5.0
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_NEXT_CLOCK: Final = "Synchronise the clocks of both hosts (chronyd or systemd-timesyncd)."


class _Probe(NamedTuple):
    """A request that a key of one scope may make, and that changes nothing."""

    scope: str
    method: str
    path: str


_PROBES: Final = {
    "collector": (_Probe("ingest", "POST", "/v1/traces"), _Probe("read", "GET", "/metrics")),
    "gateway": (
        _Probe("serve", "GET", "/v1/models"),
        _Probe("train", "GET", "/admin/status"),
        _Probe("read", "GET", "/metrics"),
    ),
    "dashboard": (),
}


def service_checks(data_dir: Path) -> Iterator[Check]:
    """Check all that settings name; on a machine that runs everything, only whether its gateway uses exact ids."""
    key, problem = _read_key()
    if problem is not None:
        yield problem
    for service in SERVICE_URL_ENVS:
        try:
            address = configured_address(service)
        except SpanloopError as error:
            yield Check(service, ok=False, detail=error.what, fix=error.next_step)
            continue
        if address is not None:
            yield from _check_service(address, key)
        elif service == "gateway":
            yield from _check_local_gateway(data_dir)
    yield from _check_clickhouse()
    yield from _check_control(data_dir)
    yield from _check_shared(data_dir)
    yield from _check_object_storage(data_dir)


def _read_key() -> tuple[str, Check | None]:
    try:
        return read_setting(KEY_ENV), None
    except SpanloopError as error:
        return "", Check("key", ok=False, detail=error.what, fix=error.next_step)


def _check_service(address: ServiceAddress, key: str) -> Iterator[Check]:
    import httpx

    name = SERVICE_URL_ENVS[address.service]
    try:
        with httpx.Client(
            base_url=address.url, timeout=_TIMEOUT_S, trust_env=False, verify=trusted_certificates(address.url)
        ) as client:
            health = client.get("/healthz")
            answers = {probe: _ask(client, probe, key) for probe in _PROBES[address.service]}
    except (httpx.HTTPError, OSError) as error:
        fix = f"Start it on its host: spanloop serve {address.service}; or correct {name}."
        yield Check(address.service, ok=False, detail=f"{address.url} does not answer: {error}", fix=fix)
        return
    if not health.is_success:
        detail = f"{address.url}/healthz answers {health.status_code}, expected 200"
        yield Check(address.service, ok=False, detail=detail, fix=f"Let {name} name a {address.service} of spanloop.")
        return
    yield _key_check(address, key, answers)
    yield from _check_version(address, health)
    yield from _check_continuation(address.service, health)


def _check_local_gateway(data_dir: Path) -> Iterator[Check]:
    """Check the gateway that runs for this data directory, if one does."""
    import httpx

    running = DataDir(data_dir).running("gateway")
    if running is None:
        return
    try:
        health = httpx.get(
            f"{running.url}/healthz", timeout=_TIMEOUT_S, trust_env=False, verify=trusted_certificates(running.url)
        )
    except (httpx.HTTPError, OSError) as error:
        yield Check(
            "gateway",
            ok=False,
            detail=f"{running.url} does not answer: {error}",
            fix="Look at its log, then start it again: spanloop up",
        )
        return
    yield from _check_continuation("gateway", health)


def _check_continuation(service: str, health: "httpx.Response") -> Iterator[Check]:
    """Check that a gateway continues conversations from exact token ids."""
    try:
        continuation = str(health.json()["continuation"])
    except (ValueError, KeyError, TypeError):
        return  # another service
    if continuation:
        is_exact = continuation == "exact"
        detail = "conversations go on from exact token ids" if is_exact else f"conversations are {continuation}"
        fix = "Serve with vLLM 0.32 or newer; start an upstream with --enable-scale-out, and its model's folder here."
        yield Check(f"{service} continuation", ok=is_exact, detail=detail, fix=fix, needed=False)


def _ask(client: "httpx.Client", probe: _Probe, key: str) -> int:
    headers = {"content-type": "application/x-protobuf"} if probe.method == "POST" else {}
    return client.request(probe.method, probe.path, headers=headers | bearer(key)).status_code


def _key_check(address: ServiceAddress, key: str, answers: "dict[_Probe, int]") -> Check:
    accepted = [probe.scope for probe, status in answers.items() if status not in {_UNAUTHORIZED, _FORBIDDEN}]
    refused = [probe.scope for probe in answers if probe.scope not in accepted]
    where = f"{address.service} at {address.url}"
    if not answers:
        return Check(address.service, ok=True, detail=f"{address.url} answers")
    if accepted:
        lacks = f"; not for {', '.join(refused)}" if refused else ""
        how = "the key is accepted" if key else "no key is needed"
        return Check(address.service, ok=True, detail=f"{address.url} answers; {how} for {', '.join(accepted)}{lacks}")
    make = f"spanloop keys create NAME --scope {refused[0]}, where the roles' keys are"
    write = f"write it into the file that {KEY_ENV}{FILE_SUFFIX} names"
    if not key:
        return Check(
            address.service, ok=False, detail=f"the {where} needs a key, and none is set", fix=f"{make}; {write}."
        )
    if _UNAUTHORIZED in answers.values():
        detail = f"the {where} does not know the key, or it was revoked"
        return Check(
            address.service,
            ok=False,
            detail=detail,
            fix=f"{make}; {write}. All roles must share keys.json ({SHARED_DIR_ENV}).",
        )
    detail = f"the {where} accepts the key for none of {', '.join(refused)}"
    return Check(address.service, ok=False, detail=detail, fix=f"{make}; {write}.")


def _check_version(address: ServiceAddress, health: "httpx.Response") -> Iterator[Check]:
    try:
        theirs = str(health.json()["spanloop"])
    except (ValueError, KeyError, TypeError):
        return  # the dashboard's front or a status page without a version
    ours, name = version("spanloop"), f"{address.service} version"
    detail = f"spanloop {theirs} there" + ("" if theirs == ours else f", {ours} here")
    yield Check(
        name,
        theirs == ours,
        detail,
        f"Install the same on all hosts: spanloop {ours}, by pip install /path/to/spanloop",
    )


def _check_clickhouse() -> Iterator[Check]:
    from spanloop.store.discovery import configured_address
    from spanloop.store.server_clock import server_clock

    try:
        address = configured_address()
    except SpanloopError as error:
        yield Check("ClickHouse", ok=False, detail=error.what, fix=error.next_step or f"Correct {CLICKHOUSE_URL_ENV}.")
        return
    for server in [] if address is None else address.servers:
        try:
            clock = server_clock(server)
        except SpanloopError as error:
            fix = error.next_step or f"Correct {CLICKHOUSE_URL_ENV}."
            yield Check("ClickHouse", ok=False, detail=error.what, fix=fix)
            continue
        part = f", in cluster {server.cluster!r}" if server.cluster else ""
        yield Check("ClickHouse", ok=True, detail=f"{server} answers, version {clock.version}{part}")
        yield _clock_check("ClickHouse", clock.ahead_s)


def _check_control(data_dir: Path) -> Iterator[Check]:
    from spanloop.foundation.control.clock import database_time
    from spanloop.foundation.control.pipelines import running_pipelines
    from spanloop.training.jobs.database.control_database import SCHEMA_VERSION, ControlDatabase
    from spanloop.training.jobs.database.tables import LeaderRow
    from spanloop.training.jobs.leadership import SCHEDULER
    from spanloop.training.jobs.paths import ControlPaths

    try:
        if not read_setting(CONTROL_URL_ENV):
            return
        database = ControlDatabase(ControlPaths(data_dir), migrate=False)
        has_tables = database.stored_version() == SCHEMA_VERSION
        with database.read() as session:
            session.connection()
            began_s = time.time()
            now = database_time(session)
            ahead_s = now.timestamp() - (began_s + time.time()) / 2
            leader = session.get(LeaderRow, SCHEDULER) if has_tables else None
        pipelines = running_pipelines(database)
    except SpanloopError:
        return  # the check of the control database says why
    yield _clock_check("the control database", ahead_s)
    leads = leader is not None and bool(leader.owner) and leader.until > now
    detail = "one is active, and renews its lease" if leads else "none is active: schedules do not start jobs"
    yield Check("scheduler", leads, detail, "Start one: spanloop serve scheduler", needed=False)
    names = ", ".join(f"{process_name(each.owner)} ({each.activity})" for each in pipelines)
    detail = (
        f"{len(pipelines)} share the conversion: {names}" if pipelines else "none is registered: no span is converted"
    )
    yield Check("pipelines", bool(pipelines), detail, "Start one: spanloop serve pipeline", needed=False)


def _clock_check(where: str, difference_s: float) -> Check:
    sign = "ahead of" if difference_s > 0 else "behind"
    detail = f"{abs(difference_s):.1f} s {sign} this host's; at most {MAX_CLOCK_DIFFERENCE_S:g} s are expected"
    return Check(f"clock of {where}", abs(difference_s) <= MAX_CLOCK_DIFFERENCE_S, detail, _NEXT_CLOCK)


def _check_object_storage(data_dir: Path) -> Iterator[Check]:
    try:
        storage = object_storage(data_dir)
        if storage is None:
            return
        versions = len(storage.store.names("models"))
    except SpanloopError as error:
        yield Check("object storage", ok=False, detail=error.what, fix=error.next_step)
        return
    yield Check("object storage", True, f"{storage.store.url} answers, with {versions} objects of models")


def _check_shared(data_dir: Path) -> Iterator[Check]:
    folder = shared_dir(data_dir)
    if folder == data_dir:
        return
    if not folder.is_dir():
        detail, fix = f"{SHARED_DIR_ENV} names {folder}, which is not a directory", f"Mount it; or: mkdir -p {folder}"
        yield Check("shared folder", ok=False, detail=detail, fix=fix)
        return
    is_writable = os.access(folder, os.W_OK | os.X_OK)
    keys = "with API keys" if (folder / "keys.json").exists() else "without API keys"
    yield Check(
        "shared folder",
        is_writable,
        f"{folder}, {keys}" if is_writable else f"{folder} is not writable by this user",
        "Let the roles on all hosts run as users who can write there.",
    )
