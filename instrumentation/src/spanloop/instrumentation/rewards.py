"""``reward()``: score an attempt with OpenTelemetry's log event ``gen_ai.evaluation.result``.

Invariant: a reward that cannot be sent is reported on stderr, never raised; only finite numbers are sent, because
one NaN spoils the advantages of its whole group.
"""

import math
import time
from typing import Final

from opentelemetry import trace
from opentelemetry._logs import LogRecord, SeverityNumber, get_logger

from spanloop.instrumentation.attempts import attempt_in
from spanloop.instrumentation.exception_guard import guard
from spanloop.instrumentation.notice import print_once
from spanloop.semconv import attributes as names

_SCOPE_NAME: Final = "spanloop.instrumentation"


@guard("a reward was not sent", None)
def reward(
    value: float, *, name: str = "reward", label: str = "", explanation: str = "", response_id: str = ""
) -> None:
    """Score an attempt, a span or a model response.

    Inside ``task()`` the score belongs to the attempt; elsewhere to the current span, or to ``response_id``.

    Args:
        value: Higher is better; any finite number (``True`` is 1).
        name: The reward's name, where there are several.
        label: The score as a word, such as ``pass``.
        explanation: The reason for the score.
        response_id: The scored model response (``id`` of a chat completion); empty scores the whole attempt.
    """
    score = float(value)
    if not math.isfinite(score):
        print_once(f"reward({value!r}, name={name!r}) was not sent: expected a finite number; check how it is computed")
        return
    attempt = attempt_in()
    if attempt is None and not response_id and not trace.get_current_span().get_span_context().is_valid:
        print_once(f"reward({value!r}, name={name!r}) belongs to nothing: call it inside task(), or give response_id")
        return
    optional = {
        names.GEN_AI_EVALUATION_SCORE_LABEL: label,
        names.GEN_AI_EVALUATION_EXPLANATION: explanation,
        names.GEN_AI_RESPONSE_ID: response_id,
    }
    attributes: dict[str, str | float] = {
        names.GEN_AI_EVALUATION_NAME: name,
        names.GEN_AI_EVALUATION_SCORE_VALUE: score,
        **{key: text for key, text in optional.items() if text},
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
