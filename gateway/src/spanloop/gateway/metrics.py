"""The gateway's metrics."""

from typing import Final

from spanloop.foundation.telemetry import metrics

FAMILIES: Final[metrics.Families] = {
    "requests_total": ("counter", "Chat requests by HTTP status; 499: the client disconnected."),
    "defects_total": ("counter", "Requests that a defect of the gateway ended (code internal_error); see its log."),
    "request_seconds_total": ("counter", "Time from a request's arrival to the end of its response."),
    "refused_total": (
        "counter",
        "Requests refused by a limit of their key, a full queue (overloaded), the memory of bodies or the shutdown.",
    ),
    "retried_total": ("counter", "Requests sent to another engine after theirs did not answer."),
    "repeated_total": ("counter", "Requests sent to the engine again after a weight swap preempted them."),
    "canary_fallbacks_total": (
        "counter",
        "Calls that the champion answered because the candidate of a canary failed.",
    ),
    "shadow_answers_total": ("counter", "Copies of calls that a shadow candidate got, by whether it failed."),
    "shadow_skipped_total": ("counter", "Copies that were not sent, because eight were running."),
    "continuations_total": (
        "counter",
        "Requests that went on from exact token ids, by whether their whole history did (whole, branched).",
    ),
    "captures_total": ("counter", "Choices whose tokens were stored, by completeness."),
    "captures_lost_total": ("counter", "Choices that were delivered, but whose tokens could not be stored."),
    "tokens_total": ("counter", "Captured tokens."),
    "deployments_total": ("counter", "Deployments by method."),
    "captures_rejected_total": ("counter", "Captures that could not become rows; kept in gateway/rejected.jsonl."),
    "captures_inserted_total": ("counter", "Captures inserted into ClickHouse."),
    "engine_serving": ("gauge", "1 while an engine answers requests."),
    "engines_serving": ("gauge", "Engines that answer requests."),
    "engine_restarts": ("gauge", "Restarts of the engine since its last deployment."),
    "engine_start_duration_seconds": ("gauge", "How long the engine's last start took."),
    "running_requests": ("gauge", "Requests that use an engine now."),
    "held_requests": ("gauge", "Requests that wait for room in an engine or for new weights."),
    "body_bytes": ("gauge", "Memory of the bodies of requests in progress."),
    "conversation_bytes": ("gauge", "Memory of the token ids from which conversations are continued."),
    "spool_bytes": ("gauge", "Bytes of captures on disk that wait for ClickHouse."),
    "spool_records": ("gauge", "Records of captures on disk that wait for ClickHouse."),
    "spool_oldest_age_seconds": ("gauge", "Age of the oldest waiting record."),
    "last_insert_timestamp_seconds": ("gauge", "When ClickHouse last confirmed captures; 0 before the first."),
}


class Metrics(metrics.Metrics):
    """Counters and gauges of one gateway."""

    def __init__(self) -> None:
        super().__init__("spanloop_gateway_", FAMILIES)
