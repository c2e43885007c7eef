"""``reward()``: how well an attempt went, as OpenTelemetry's log event ``gen_ai.evaluation.result``.

Invariant: a reward that cannot be sent is told on stderr, never raised; a value that is no finite number is not sent,
because a reward of NaN would poison its whole group.
"""

import math
import time
from typing import Final

from opentelemetry import trace
from opentelemetry._logs import LogRecord, SeverityNumber, get_logger

from spanloop.instrumentation.attempts import attempt_in
from spanloop.instrumentation.exception_guard import guard
from spanloop.instrumentation.notice import tell
from spanloop.semconv import attributes as names

_SCOPE_NAME: Final = "spanloop.instrumentation"


@guard("a reward was not sent", None)
def reward(
    value: float, *, name: str = "reward", label: str = "", explanation: str = "", response_id: str = ""
) -> None:
    """Say how well it went.

    Inside ``task()`` it scores the attempt; elsewhere the current span, or the model response ``response_id``.

    Args:
        value: Higher is better; any finite number (``True`` is 1).
        name: Which reward, where there are several.
        label: A word for it, such as ``pass``.
        explanation: Why.
        response_id: The model response that it is for (``id`` of a chat completion); empty scores the whole attempt.
    """
    score = float(value)
    if not math.isfinite(score):
        tell(f"reward({value!r}, name={name!r}) was not sent: expected a finite number; check how it is computed")
        return
    attempt = attempt_in()
    if attempt is None and not response_id and not trace.get_current_span().get_span_context().is_valid:
        tell(f"reward({value!r}, name={name!r}) belongs to nothing: call it inside task(), or give response_id")
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
