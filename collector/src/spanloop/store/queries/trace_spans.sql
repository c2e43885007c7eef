-- Every span of one trace with everything stored of it, oldest first.
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
WHERE TraceId = {trace_id:String}
ORDER BY Timestamp, SpanId
