"""``mark()``: put a label on an episode, by which training selects it.

Invariant: a mark is a score named ``spanloop.mark``, which never counts as a reward. Of one episode and label the
newest call counts. A mark that cannot be sent is reported on stderr, never raised.
"""

import uuid

from spanloop.instrumentation.evaluation_events import emit_evaluation
from spanloop.instrumentation.exception_guard import guard
from spanloop.instrumentation.notice import print_once
from spanloop.semconv import attributes as names


@guard("a mark was not sent", None)
def mark(label: str, *, remove: bool = False, explanation: str = "", response_id: str = "") -> None:
    """Mark an episode.

    Inside ``task()`` the mark belongs to the attempt; elsewhere to the episode of the current span, or of
    ``response_id``. Training jobs select episodes by ``marks`` and ``without_marks``.

    Args:
        label: The mark, such as ``good``; an episode may have several.
        remove: Take an earlier mark of this label back.
        explanation: The reason for the mark.
        response_id: A model response of the episode (``id`` of a chat completion).
    """
    if not isinstance(label, str) or not label.strip():  # pyright: ignore[reportUnnecessaryIsInstance] - a user's call
        print_once(f"mark({label!r}) was not sent: expected a text that is not empty")
        return
    texts = {
        # a key of its own: two marks of one episode differ in nothing else but their label and time
        names.SPANLOOP_SCORE_ID: uuid.uuid4().hex,
        names.GEN_AI_EVALUATION_SCORE_LABEL: label.strip(),
        names.GEN_AI_EVALUATION_EXPLANATION: explanation,
        names.GEN_AI_RESPONSE_ID: response_id,
    }
    emit_evaluation(f"mark({label!r})", names.MARK_NAME, 0.0 if remove else 1.0, texts)
