"""``POST /v1/scores``: receive scores as OpenTelemetry's log events ``gen_ai.evaluation.result``.

Invariant: 200 acknowledges that every accepted score is on disk. Each score is validated alone: an invalid score is
named in the response, and the other scores are accepted.
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

from spanloop.foundation.keys.api_keys import Scope
from spanloop.semconv import attributes as names
from spanloop.store.scores import Score

from ..otlp.wire import serialize
from ..receiver import Receiver
from ..validation import JSON, PROTOBUF, Signal
from .otlp_http import RequestHead, admit, error_response, read_body
from .request_errors import RefusedError, RpcCode, invalid

PATH: Final = "/v1/scores"


class _ParsedScores(NamedTuple):
    """The scores in a request body."""

    scores: list[Score]
    rejected: list[dict[str, object]]
    """``{"index", "error"}`` of each invalid score."""


def create_scores_endpoint(receiver: Receiver) -> Callable[[Request], Awaitable[Response]]:
    """Create the endpoint. A body is a score (`spanloop.store.scores.Score`), a list of scores, or ``{"scores": […]}``.

    The response is ``{"accepted": n, "ids": […], "rejected": [{"index": i, "error": "…"}]}``; 400 when nothing was
    accepted, 415 for anything but JSON, 413 and 503 as for spans.
    """

    async def receive(request: Request) -> Response:
        head = RequestHead.of(request.scope)
        try:
            with (
                await admit(head, Scope.SCORE, request.receive, receiver) as admission,
                receiver.memory_budget.reserve() as reservation,
            ):
                _check_content_type(head)
                limit_bytes = admission.body_bytes
                body = await read_body(head, request.receive, receiver, reservation, limit_bytes=limit_bytes)
                parsed = _parse_scores(body)
                if parsed.scores:
                    await receiver.receive(Signal.LOGS, serialize(scores_to_log_request(parsed.scores)), PROTOBUF)
        except RefusedError as error:
            receiver.record_refused(Signal.LOGS, error)
            return error_response(head, error)
        except ClientDisconnect:
            return Response(status_code=HTTPStatus.BAD_REQUEST)
        if parsed.scores:
            receiver.metrics.count("rejected_total", len(parsed.rejected), signal=Signal.LOGS, reason="bad_score")
        response = {
            "accepted": len(parsed.scores),
            "ids": [score.key for score in parsed.scores],
            "rejected": parsed.rejected,
        }
        status = HTTPStatus.BAD_REQUEST if parsed.rejected and not parsed.scores else HTTPStatus.OK
        return Response(json.dumps(response), status, media_type=JSON)

    return receive


def _check_content_type(head: RequestHead) -> None:
    if head.content_type != JSON:
        raise RefusedError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            RpcCode.UNIMPLEMENTED,
            f"content type {head.content_type!r} is not supported; expected {JSON}",
        )


def scores_to_log_request(scores: list[Score]) -> ExportLogsServiceRequest:
    """Convert scores to log events ``gen_ai.evaluation.result``."""
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


def _parse_scores(body: bytes) -> _ParsedScores:
    try:
        content: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise invalid(f"not JSON: {error}; expected a score, a list of scores, or {{'scores': […]}}") from error
    if isinstance(content, dict):
        fields = cast("dict[str, object]", content)
        content = fields.get("scores", fields)
    items = cast("list[object]", content) if isinstance(content, list) else [content]
    scores: list[Score] = []
    rejected: list[dict[str, object]] = []
    for index, item in enumerate(items):
        try:
            scores.append(Score.model_validate(item))
        except ValidationError as error:
            rejected.append({"index": index, "error": _describe_error(error)})
    return _ParsedScores(scores, rejected)


def _describe_error(error: ValidationError) -> str:
    """Describe each invalid field in one line, without the values that were sent."""
    faults = ((".".join(map(str, fault["loc"])), fault["msg"]) for fault in error.errors(include_url=False))
    return "; ".join(f"{field}: {message}" if field else message for field, message in faults)
