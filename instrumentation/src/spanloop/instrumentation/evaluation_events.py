"""OpenTelemetry's log event ``gen_ai.evaluation.result``, which carries rewards and marks."""

import time
from collections.abc import Mapping
from typing import Final

from opentelemetry import trace
from opentelemetry._logs import LogRecord, SeverityNumber, get_logger

from spanloop.instrumentation.attempts import attempt_in
from spanloop.instrumentation.notice import print_once
from spanloop.semconv import attributes as names

_SCOPE_NAME: Final = "spanloop.instrumentation"


def emit_evaluation(call: str, name: str, score: float, texts: Mapping[str, str]) -> None:
    """Send one evaluation of the current attempt, of the current span, or of a response.

    An evaluation that belongs to nothing is reported on stderr instead.

    Args:
        call: The user's call, for that report.
        name: ``gen_ai.evaluation.name``.
        score: ``gen_ai.evaluation.score.value``; finite.
        texts: Further attributes; empty ones are left out.
    """
    attempt = attempt_in()
    has_response = bool(texts.get(names.GEN_AI_RESPONSE_ID))
    if attempt is None and not has_response and not trace.get_current_span().get_span_context().is_valid:
        print_once(f"{call} belongs to nothing: call it inside task(), or give response_id")
        return
    attributes: dict[str, str | float] = {
        names.GEN_AI_EVALUATION_NAME: name,
        names.GEN_AI_EVALUATION_SCORE_VALUE: score,
        **{key: text for key, text in texts.items() if text},
        **(attempt.attributes() if attempt else {}),
    }
    get_logger(_SCOPE_NAME).emit(
        LogRecord(
            timestamp=time.time_ns(),
            severity_number=SeverityNumber.INFO,
            severity_text="INFO",
            event_name=names.EVALUATION_EVENT_NAME,
            attributes=attributes,
        )
    )
