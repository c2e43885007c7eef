"""``POST /v1/scores``: scores by the same road as everything else, as the log events that OpenTelemetry has for them.

Invariant: 200 means that every accepted score is on disk. Each score stands for itself: one that is wrong is named in
the answer and costs no other.
"""

import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, NamedTuple, cast

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from spanloop.authentication.api_keys import Scope
from spanloop.semconv import attributes as names
from spanloop.store.scores import Score

from .otlp.wire import serialize
from .otlp_http import Head, read_body, refused_response
from .receiver import Receiver
from .request_errors import RefusedError, RpcCode, invalid
from .validation import JSON, PROTOBUF, Signal

PATH: Final = "/v1/scores"


class _Read(NamedTuple):
    """What a body holds."""

    scores: list[Score]
    rejected: list[dict[str, object]]
    """``{"index", "error"}`` of each that is wrong."""


def score_receiver(receiver: Receiver) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint. A body is a score (`spanloop.store.scores.Score`), a list of them, or ``{"scores": […]}``.

    The answer is ``{"accepted": n, "ids": […], "rejected": [{"index": i, "error": "…"}]}``; 400 when nothing was
    accepted, 415 for anything but JSON, 413 and 503 as for spans.
    """

    async def receive(request: Request) -> Response:
        head = Head.of(request.scope)
        try:
            receiver.guard.check(head.authorization, Scope.SCORE)
            _check_content_type(head)
            with receiver.budget.share() as share:
                read = _read(await read_body(head, request.receive, receiver, share))
                if read.scores:
                    await receiver.receive(Signal.LOGS, serialize(as_log_request(read.scores)), PROTOBUF)
        except RefusedError as refused:
            receiver.refused(Signal.LOGS, refused)
            return refused_response(head, refused)
        except ClientDisconnect:
            return Response(status_code=HTTPStatus.BAD_REQUEST)
        if read.scores:
            receiver.metrics.count("rejected_total", len(read.rejected), signal=Signal.LOGS, reason="bad_score")
        answer = {
            "accepted": len(read.scores),
            "ids": [score.key for score in read.scores],
            "rejected": read.rejected,
        }
        status = HTTPStatus.BAD_REQUEST if read.rejected and not read.scores else HTTPStatus.OK
        return Response(json.dumps(answer), status, media_type=JSON)

    return receive


def _check_content_type(head: Head) -> None:
    if head.content_type != JSON:
        raise RefusedError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            RpcCode.UNIMPLEMENTED,
            f"content type {head.content_type!r} is not supported; expected {JSON}",
        )


def as_log_request(scores: list[Score]) -> ExportLogsServiceRequest:
    """The scores as log events ``gen_ai.evaluation.result``."""
    scope = InstrumentationScope(name="spanloop.collector.scores")
    records = [_record(score) for score in scores]
    return ExportLogsServiceRequest(
        resource_logs=[ResourceLogs(scope_logs=[ScopeLogs(scope=scope, log_records=records)])]
    )


def _record(score: Score) -> LogRecord:
    texts = {
        names.SPANLOOP_SCORE_ID: score.key,
        names.GEN_AI_EVALUATION_NAME: score.name,
        names.GEN_AI_EVALUATION_SCORE_LABEL: score.label,
        names.GEN_AI_EVALUATION_EXPLANATION: score.comment,
        names.SPANLOOP_SCORE_SOURCE: score.source,
        names.GEN_AI_RESPONSE_ID: score.response_id,
        names.SESSION_ID: score.session_id,
        names.SPANLOOP_EPISODE_ID: score.episode_id,
        names.SPANLOOP_TASK_ID: score.task_id,
        names.SPANLOOP_SCORE_DELETED: "true" if score.deleted else "",
    }
    attributes = [KeyValue(key=key, value=AnyValue(string_value=text)) for key, text in texts.items() if text]
    value = AnyValue(double_value=score.number)
    attributes.append(KeyValue(key=names.GEN_AI_EVALUATION_SCORE_VALUE, value=value))
    return LogRecord(
        time_unix_nano=score.timestamp_ns(),
        severity_number=SeverityNumber.SEVERITY_NUMBER_INFO,
        trace_id=bytes.fromhex(score.judged_trace_id),
        span_id=bytes.fromhex(score.span_id),
        event_name=names.EVALUATION_EVENT_NAME,
        attributes=attributes,
    )


def _read(body: bytes) -> _Read:
    try:
        found: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise invalid(f"not JSON: {error}; expected a score, a list of scores, or {{'scores': […]}}") from error
    if isinstance(found, dict):
        fields = cast("dict[str, object]", found)
        found = fields.get("scores", fields)
    items = cast("list[object]", found) if isinstance(found, list) else [found]
    scores: list[Score] = []
    rejected: list[dict[str, object]] = []
    for index, item in enumerate(items):
        try:
            scores.append(Score.model_validate(item))
        except ValidationError as error:
            rejected.append({"index": index, "error": _said(error)})
    return _Read(scores, rejected)


def _said(error: ValidationError) -> str:
    """What is wrong, field by field, in one line, without what was sent."""
    faults = ((".".join(map(str, fault["loc"])), fault["msg"]) for fault in error.errors(include_url=False))
    return "; ".join(f"{where}: {what}" if where else what for where, what in faults)
