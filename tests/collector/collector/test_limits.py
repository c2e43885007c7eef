"""Limits by API key, over HTTP and gRPC: refused requests lose nothing when their client retries."""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from spanloop.collector.endpoints.authentication import Authenticator
from spanloop.collector.endpoints.otlp_grpc import serve_grpc
from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.keys.limits import KeyLimiter
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import KeyLimits, Limits

from .collectors import App, trace_request
from .test_authentication import TRACES

Limit = Callable[[Limits], str]


@pytest.fixture
def limited(app: App, data_dir: DataDir) -> Limit:
    """Sets the limits of a new key, and returns the header that sends it."""
    ring = KeyRing(data_dir)

    def limit(limits: Limits) -> str:
        app.receiver.authenticator = Authenticator(ring, KeyLimiter(limits))
        return f"Bearer {ring.create('app', [Scope.INGEST, Scope.SCORE]).secret}"

    return limit


@pytest.mark.parametrize(("limits", "status"), [(Limits(requests_per_s=60), 429), (Limits(concurrent_requests=4), 503)])
async def test_a_client_that_retries_gets_everything_through(
    app: App, limited: Limit, limits: Limits, status: int
) -> None:
    header = limited(limits)
    refused: set[int] = set()

    async def send(number: int) -> None:
        body = trace_request(number).SerializeToString()
        while (response := await app.post(body, authorization=header)).status_code != 200:
            assert int(response.headers["retry-after"]) >= 1
            refused.add(response.status_code)
            await asyncio.sleep(0.1)

    await asyncio.gather(*(send(number) for number in range(1, 121)))
    assert refused == {status}
    assert len(app.spooled()) == len({body for _, body in app.spooled()}) == 120


async def test_scores_count_too_and_a_large_body_is_refused_for_this_key_alone(app: App, limited: Limit) -> None:
    header = limited(Limits(requests_per_s=2, keys={"app": KeyLimits(body_bytes=40)}))
    score = b'{"value": 1, "session_id": "s"}'
    accepted = await app.post(score, "/v1/scores", authorization=header, content_type="application/json")
    assert accepted.status_code == 200, accepted.text
    large = await app.post(trace_request(*range(1, 9)).SerializeToString(), authorization=header)
    assert large.status_code == 413
    assert b"larger than 40 bytes" in large.content
    limited_now = await app.post(score, "/v1/scores", authorization=header, content_type="application/json")
    assert limited_now.status_code == 429
    assert len(app.spooled()) == 1


@pytest.mark.parametrize(
    ("limits", "spans", "is_retryable"), [(Limits(requests_per_s=0.01), 1, True), (Limits(body_bytes=1_000), 90, False)]
)
async def test_grpc_has_the_same_limits(
    app: App, limited: Limit, limits: Limits, spans: int, *, is_retryable: bool
) -> None:
    metadata = (("authorization", limited(limits)),)
    async with (
        serve_grpc(app.receiver, "127.0.0.1", 0) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        export = channel.unary_unary(TRACES)
        assert await export(trace_request(1).SerializeToString(), metadata=metadata) == b""
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await export(trace_request(*range(1, spans + 1)).SerializeToString(), metadata=metadata)
    assert refused.value.code().name == "RESOURCE_EXHAUSTED"
    details: dict[str, Any] = dict(refused.value.trailing_metadata() or ())
    assert (b"google.rpc.RetryInfo" in details["grpc-status-details-bin"]) == is_retryable
    assert len(app.spooled()) == 1
