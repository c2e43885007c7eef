"""Keys whose calls stop at a limit of tokens: what is counted, what is refused, and what the agent is told."""

from typing import Any

import httpx
import pytest
from openai import APIStatusError, OpenAI

from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.keys.local_tokens import METERED_PREFIX, metered_key
from spanloop.gateway.api_errors import ApiError
from spanloop.gateway.metered_keys import MeteredKeys

from .support import PROMPT_IDS, TIMEOUT_S, WORDS, RunningGateway, StandIn

CALL_TOKENS = len(PROMPT_IDS) + len(WORDS)


def set_limit(gateway: RunningGateway, key: str, limit: Any) -> httpx.Response:
    return gateway.admin("metered", key=key, limit=limit)


def chat(gateway: RunningGateway, key: str, *, stream: bool = False) -> httpx.Response:
    return gateway.chat(headers={"Authorization": f"Bearer {key}"}, stream=stream)


@pytest.mark.parametrize("stream", [False, True])
def test_the_call_that_would_exceed_the_limit_is_refused_before_the_engine(
    gateway: RunningGateway, stand_in: StandIn, *, stream: bool
) -> None:
    key = metered_key()
    assert set_limit(gateway, key, 2 * CALL_TOKENS).json() == {"tokens": 0, "refused": 0}
    assert [chat(gateway, key, stream=stream).status_code for _ in range(2)] == [200, 200]
    before = len(stand_in.requests)
    refused = chat(gateway, key)
    assert len(stand_in.requests) == before
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["type"]) == (429, "insufficient_quota", "rate_limit_error")
    assert f"{2 * CALL_TOKENS} of {2 * CALL_TOKENS} tokens are spent" in error["message"]
    assert "Raise [budget] in the loop's file." in error["message"]
    assert set_limit(gateway, key, 3 * CALL_TOKENS).json() == {"tokens": 2 * CALL_TOKENS, "refused": 1}
    assert chat(gateway, key).status_code == 200
    assert chat(gateway, "another key").status_code == 200


def test_openais_client_does_not_repeat_a_refused_call(gateway: RunningGateway) -> None:
    key = metered_key()
    set_limit(gateway, key, 0)
    with OpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client, pytest.raises(APIStatusError, match="no room"):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    assert set_limit(gateway, key, 0).json()["refused"] == 1


def test_running_calls_reserve_what_the_largest_call_has_cost() -> None:
    keys = MeteredKeys()
    key = metered_key()
    keys.set(key, 100)
    with keys.begin(key) as first:
        first.count(40)
    with keys.begin(key), pytest.raises(ApiError, match="40 of 100 tokens are spent, 1 calls run"):
        keys.begin(key)  # 40 spent, 40 reserved, 40 expected
    with keys.begin(key):
        pass
    assert keys.set(key, 100).refused == 1


def test_a_metered_key_is_an_api_key_while_it_is_known(gateway: RunningGateway) -> None:
    KeyRing(gateway.data_dir).create("app", [Scope.SERVE])
    key = metered_key()
    assert chat(gateway, key).status_code == 401
    set_limit(gateway, key, 1_000)
    assert chat(gateway, key).status_code == 200
    headers = {"Authorization": f"Bearer {key}"}
    assert httpx.get(f"{gateway.url}/admin/status", headers=headers, timeout=TIMEOUT_S).status_code == 401


def test_a_metered_key_of_a_gateway_before_is_not_known(gateway: RunningGateway) -> None:
    refused = chat(gateway, metered_key())
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "metered_key_unknown")


@pytest.mark.parametrize(
    ("key", "limit"), [("k", 1), (METERED_PREFIX, 1), (f"{METERED_PREFIX}k", -1), (f"{METERED_PREFIX}k", "1")]
)
def test_a_limit_needs_a_key_and_a_number(gateway: RunningGateway, key: str, limit: object) -> None:
    assert set_limit(gateway, key, limit).status_code == 400
