"""What the ingest benchmarks send, and how: spans of 3 KB like a model call's, over kept connections."""

import http.client
import os
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import psutil
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

BATCH_SPANS: Final = 512
SMALL_BATCH_SPANS: Final = 8
CONNECTIONS: Final = 4
WORDS: Final = tuple("".join(random.Random(at).choices("etaoinshrdlu", k=2 + at % 8)) for at in range(4000))


def pair(key: str, value: str | float) -> KeyValue:
    """One attribute."""
    if isinstance(value, str):
        return KeyValue(key=key, value=AnyValue(string_value=value))
    if isinstance(value, int):
        return KeyValue(key=key, value=AnyValue(int_value=value))
    return KeyValue(key=key, value=AnyValue(double_value=value))


def make_span(rng: random.Random, trace_id: bytes, start_ns: int, token_ids: int) -> Span:
    """One model call of about 3 KB and its token ids, whose finish reasons are an array."""
    span = Span(
        trace_id=trace_id, span_id=rng.randbytes(8), name="chat m", kind=Span.SPAN_KIND_CLIENT,
        start_time_unix_nano=start_ns, end_time_unix_nano=start_ns + rng.randrange(1, 5 * 10**9),
    )  # fmt: skip
    texts = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m-2026",
        "gen_ai.response.id": f"chatcmpl-{rng.getrandbits(96):x}",
        "gen_ai.conversation.id": f"{rng.getrandbits(64):x}",
        "session.id": f"{rng.getrandbits(64):x}",
        "server.address": "api.example.com",
        "gen_ai.system_instructions": " ".join(rng.choices(WORDS, k=60)),
        "gen_ai.input.messages": " ".join(rng.choices(WORDS, k=rng.randrange(120, 340))),
        "gen_ai.output.messages": " ".join(rng.choices(WORDS, k=rng.randrange(60, 120))),
    }
    span.attributes.extend(pair(key, value) for key, value in texts.items())
    span.attributes.extend(pair(f"app.tag.{at}", f"{rng.getrandbits(32):x}") for at in range(6))
    span.attributes.append(pair("gen_ai.request.temperature", 0.7))
    span.attributes.append(pair("gen_ai.usage.input_tokens", rng.randrange(20_000)))
    span.attributes.append(pair("gen_ai.usage.output_tokens", rng.randrange(2_000)))
    reasons = span.attributes.add()
    reasons.key = "gen_ai.response.finish_reasons"
    reasons.value.array_value.values.add().string_value = "stop"
    if token_ids:
        ids = span.attributes.add(key="prompt_token_ids").value.array_value.values
        ids.extend(AnyValue(int_value=rng.randrange(150_000)) for _ in range(token_ids))
    return span


def make_bodies(
    count: int,
    batch_spans: int = BATCH_SPANS,
    *,
    around: Sequence[Sequence[KeyValue]] = ((),),
    token_ids: int = 0,
) -> list[bytes]:
    """Requests of as many spans, the same for every run but for their time.

    Args:
        count: Requests.
        batch_spans: Spans in each; a multiple of 8.
        around: More attributes of the resource, for one request after the other.
        token_ids: How many each span has; none is what all but one comparison sends.
    """
    rng = random.Random(7)
    start_ns = time.time_ns()
    bodies: list[bytes] = []
    for number in range(count):
        request = ExportTraceServiceRequest()
        resource_spans = request.resource_spans.add()
        resource_spans.resource.attributes.extend([pair("service.name", "agent"), pair("host.name", "node-1")])
        resource_spans.resource.attributes.extend(around[number % len(around)])
        spans = resource_spans.scope_spans.add().spans
        for _ in range(batch_spans // 8):
            trace_id = rng.randbytes(16)
            spans.extend(make_span(rng, trace_id, start_ns + at, token_ids) for at in range(8))
        bodies.append(request.SerializeToString())
    return bodies


def cpu_s(*pids: int) -> float:
    """User and system time of processes so far."""
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(time.user + time.system for time in times)


def send(port: int, bodies: Iterable[bytes]) -> list[float]:
    """Post bodies over one connection, one after the other; the seconds that each acknowledgement took."""
    return [waited_s for _, waited_s in _posted(port, bodies)]


def send_all(port: int, bodies: Sequence[bytes]) -> list[float]:
    """The same over `CONNECTIONS` connections at once, sorted."""
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        parts = [bodies[at::CONNECTIONS] for at in range(CONNECTIONS)]
        return sorted(wait for part in pool.map(send, [port] * CONNECTIONS, parts) for wait in part)


def send_at_rate(port: int, bodies: Sequence[bytes], per_s: float) -> list[float]:
    """Requests at fixed times, whether the ones before were answered or not; the seconds from then to each answer."""
    start_s = time.perf_counter() + 0.05

    def part(first: int) -> list[float]:
        due_s = [start_s + at / per_s for at in range(first, len(bodies), CONNECTIONS)]

        def punctual() -> Iterator[bytes]:
            for when_s, body in zip(due_s, bodies[first::CONNECTIONS], strict=True):
                time.sleep(max(0.0, when_s - time.perf_counter()))
                yield body

        answered_s = [end_s for end_s, _ in _posted(port, punctual())]
        return [end_s - when_s for end_s, when_s in zip(answered_s, due_s, strict=True)]

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return sorted(wait for waits in pool.map(part, range(CONNECTIONS)) for wait in waits)


def _posted(port: int, bodies: Iterable[bytes]) -> Iterator[tuple[float, float]]:
    """When each was answered, and how long that took; ends the benchmark when one was refused."""
    client = http.client.HTTPConnection("127.0.0.1", port)
    for body in bodies:
        start_s = time.perf_counter()
        client.request("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf"})
        answer = client.getresponse()
        answer.read()
        if answer.status != 200:
            print(f"port {port} answered {answer.status}", flush=True)
            os._exit(1)
        end_s = time.perf_counter()
        yield end_s, end_s - start_s
    client.close()


def percentile(waited_s: Sequence[float], share: float) -> float:
    """Of sorted waits, in milliseconds."""
    return waited_s[min(len(waited_s) - 1, int(len(waited_s) * share))] * 1e3
