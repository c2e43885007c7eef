-- All spans of one trace with all columns, oldest first; the trace's summary gives the time range to read.
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
