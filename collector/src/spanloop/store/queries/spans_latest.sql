-- The newest spans by start time, without their attributes.
SELECT
    Timestamp,
    TraceId,
    SpanId,
    ParentSpanId,
    ServiceName,
    SpanName,
    SpanKind,
    Duration,
    StatusCode,
    StatusMessage,
    GenAiOperation,
    GenAiRequestModel,
    GenAiResponseModel,
    GenAiToolName,
    GenAiInputTokens,
    GenAiOutputTokens,
    ErrorType,
    IngestedAt
FROM otel_traces
ORDER BY Timestamp DESC
LIMIT {limit:UInt32}
