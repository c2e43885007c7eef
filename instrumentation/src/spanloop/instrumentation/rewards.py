"""``reward()``: score an attempt with OpenTelemetry's log event ``gen_ai.evaluation.result``.

Invariant: a reward that cannot be sent is reported on stderr, never raised; only numbers within the range of scores are
sent, because one NaN, or one overflow in float32, spoils the advantages of its whole group.
"""

from spanloop.instrumentation.evaluation_events import emit_evaluation
from spanloop.instrumentation.exception_guard import guard
from spanloop.instrumentation.notice import print_once
from spanloop.semconv import attributes as names
from spanloop.semconv.scores import SCORE_RANGE, is_valid_score


@guard("a reward was not sent", None)
def reward(
    value: float, *, name: str = "reward", label: str = "", explanation: str = "", response_id: str = ""
) -> None:
    """Score an attempt, a span or a model response.

    Inside ``task()`` the score belongs to the attempt; elsewhere to the current span, or to ``response_id``.

    Args:
        value: Higher is better; between -1e12 and 1e12 (``True`` is 1).
        name: The reward's name, where there are several.
        label: The score as a word, such as ``pass``.
        explanation: The reason for the score.
        response_id: The scored model response (``id`` of a chat completion); empty scores the whole attempt.
    """
    score = float(value)
    if not is_valid_score(score):
        print_once(f"reward({value!r}, name={name!r}) was not sent: expected {SCORE_RANGE}; check how it is computed")
        return
    texts = {
        names.GEN_AI_EVALUATION_SCORE_LABEL: label,
        names.GEN_AI_EVALUATION_EXPLANATION: explanation,
        names.GEN_AI_RESPONSE_ID: response_id,
    }
    emit_evaluation(f"reward({value!r}, name={name!r})", name, score, texts)
