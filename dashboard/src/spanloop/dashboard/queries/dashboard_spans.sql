-- The spans of an episode's traces in order of start, without their attribute maps.
SELECT
    TraceId AS trace_id,
    SpanId AS span_id,
    ParentSpanId AS parent_span_id,
    SpanName AS name,
    toUnixTimestamp64Nano(Timestamp) AS start_ns,
    Duration AS duration_ns,
    StatusCode AS status,
    StatusMessage AS status_message,
    GenAiOperation AS operation,
    if(GenAiResponseModel != '', GenAiResponseModel, GenAiRequestModel) AS model,
    GenAiToolName AS tool_name,
    ErrorType AS error_type,
    GenAiInputTokens AS input_tokens,
    GenAiOutputTokens AS output_tokens,
    DroppedAttributesCount AS dropped_attributes
FROM otel_traces
WHERE TraceId IN {trace_ids:Array(String)}
    AND Timestamp >= toDateTime64({from_s:Int64}, 9, 'UTC')
    AND Timestamp < toDateTime64({until_s:Int64}, 9, 'UTC')
    AND ({episode_key:String} = '' OR SpanloopEpisodeId IN ('', {episode_key:String}))
ORDER BY Timestamp, SpanId
LIMIT {max_rows:UInt32}
