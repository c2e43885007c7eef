"""``POST /v1/scores``: scores are validated alone and on disk when acknowledged; the last write of a key counts."""

import json
from collections.abc import Mapping

import httpx
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from spanloop.collector.blocks.log_rows import LogRows
from spanloop.collector.endpoints.scores_endpoint import scores_to_log_request
from spanloop.collector.otlp.wire import parse
from spanloop.pipeline import run as convert
from spanloop.store import Store
from spanloop.store.scores import Score

from .collectors import TIMEOUT_S, App, Launcher, trace_request
from .test_process import wait_for

JSON = {"content-type": "application/json"}
TRACE = f"{1:032x}"


async def send(app: App, body: object) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await app.client.post("/v1/scores", content=content, headers=JSON)


def spooled(app: App) -> list[Mapping[str, str]]:
    """Attributes of the log records that are on disk."""
    rows = LogRows()
    for kind, body in app.spooled():
        assert kind == "logs"
        rows.add(parse(ExportLogsServiceRequest, body))
    found: list[Mapping[str, str]] = rows.to_frame()["LogAttributes"].to_list()
    return found


SCORE = {"value": 0.5, "trace_id": TRACE, "id": "mine"}


@pytest.mark.parametrize("body", [SCORE, [SCORE], {"scores": [SCORE]}])
async def test_a_score_is_on_disk_when_acknowledged(app: App, body: object) -> None:
    answer = await send(app, body)
    assert (answer.status_code, answer.json()) == (200, {"accepted": 1, "ids": ["mine"], "rejected": []})
    (attributes,) = spooled(app)
    assert attributes["spanloop.score.id"] == "mine"
    assert attributes["gen_ai.evaluation.score.value"] == "0.5"


async def test_an_invalid_score_is_rejected_alone(app: App) -> None:
    scores = [{"value": value, "session_id": "s"} for value in (1e12, "x", 1e308)] + [{"value": 1}, 5]
    answer = await send(app, {"scores": scores})
    assert answer.status_code == 200
    assert answer.json()["accepted"] == len(spooled(app)) == 1
    assert [each["index"] for each in answer.json()["rejected"]] == [1, 2, 3, 4]
    assert "value" in answer.json()["rejected"][0]["error"]
    assert "expected a finite number between -1e12 and 1e12" in answer.json()["rejected"][1]["error"]
    assert app.metrics.get("rejected_total", signal="logs", reason="bad_score") == 4


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"{", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"null", "application/json", 400),
        (b'{"value": 1}', "application/json", 400),
        (b'{"value": 1e308, "session_id": "s"}', "application/json", 400),
        (b'{"value": -3e38, "session_id": "s"}', "application/json", 400),
        (b'{"value": 1, "session_id": "\xff"}', "application/json", 400),
        (b"x", "application/x-protobuf", 415),
        (b" " * (2**20 + 1), "application/json", 413),
    ],
)
async def test_hostile_bodies_are_refused_and_nothing_is_stored(
    app: App, body: bytes, content_type: str, status: int
) -> None:
    answer = await app.client.post("/v1/scores", content=body, headers={"content-type": content_type})
    assert answer.status_code == status
    assert app.spooled() == []


async def test_an_empty_list_is_fine(app: App) -> None:
    assert (await send(app, [])).json() == {"accepted": 0, "ids": [], "rejected": []}


def test_corrected_and_deleted_by_key_through_the_store(store: Store) -> None:
    def arrive(*scores: Score) -> list[tuple[float, str]]:
        rows = LogRows()
        rows.add(scores_to_log_request(list(scores)))
        store.insert("otel_logs", rows.to_frame())
        found = store.query("scores_list", trace_id="", response_id="", session_id="", episode_id="", limit=9)
        return [(row["value"], row["comment"]) for row in found.to_dicts()]

    assert arrive(Score(id="k", value=0, session_id="s")) == [(0.0, "")]
    assert arrive(Score(id="k", value=1, session_id="s"), Score(id="k", value=0.5, session_id="s", comment="c")) == [
        (0.5, "c")
    ]
    assert arrive(Score(id="k", session_id="s", deleted=True)) == []
    assert arrive(Score(id="k", value=1, session_id="s")) == [(1.0, "")]


def test_a_late_score_reaches_the_episode_through_a_real_collector(
    launch: Launcher, clickhouse_url: str, store: Store
) -> None:
    collector = launch(clickhouse_url)
    request = trace_request(1, trace_id=1)
    pair = request.resource_spans[0].scope_spans[0].spans[0].attributes.add()
    pair.key, pair.value.string_value = "gen_ai.operation.name", "chat"
    wait_for(lambda: collector.health()["status"] == "ok", "the store")
    collector.post(request.SerializeToString()).raise_for_status()
    score = {"value": 0.75, "episode_id": TRACE, "label": "fair", "comment": "late", "source": "ann"}
    answer = httpx.post(f"{collector.url}/v1/scores", json=score, timeout=TIMEOUT_S)
    assert answer.json()["accepted"] == 1
    assert collector.terminate() == 0  # which drains the spool
    convert(store)
    (found,) = store.query(
        "scores_list", trace_id=TRACE, response_id="", session_id="", episode_id="", limit=9
    ).to_dicts()
    assert (found["source"], found["label"], found["comment"]) == ("ann", "fair", "late")
    assert store.query("pipeline_stored", episode_ids=[TRACE], trace_ids=[])["reward"].to_list() == [0.75]
