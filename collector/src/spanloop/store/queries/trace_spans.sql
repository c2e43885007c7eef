-- Every span of one trace with everything stored of it, oldest first; they are looked for where the trace's summary says that they are.
WITH (SELECT (min(started_at), max(ended_at)) FROM trace_summaries WHERE trace_id = {trace_id:String}) AS spans_at
SELECT
    *,
    GenAiOperation,
    GenAiRequestModel,
    GenAiResponseModel,
    GenAiResponseId,
    GenAiConversationId,
    GenAiAgentName,
    GenAiToolName,
    GenAiToolCallId,
    GenAiInputTokens,
    GenAiOutputTokens,
    ErrorType,
    SessionId,
    SpanloopTaskId,
    SpanloopEpisodeId
FROM otel_traces
WHERE TraceId = {trace_id:String} AND Timestamp >= spans_at.1 AND Timestamp <= spans_at.2
ORDER BY Timestamp, SpanId
