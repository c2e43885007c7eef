-- The spans of the given traces in a time range (nanoseconds), with the columns that the converters read; text is made valid UTF-8.
SELECT
    Timestamp,
    TraceId,
    SpanId,
    ParentSpanId,
    toValidUTF8(source.SpanName) AS SpanName,
    toValidUTF8(source.ServiceName) AS ServiceName,
    toValidUTF8(source.ScopeName) AS ScopeName,
    CAST(mapApply((k, v) -> (toValidUTF8(k), toValidUTF8(v)), source.SpanAttributes), 'Map(String, String)') AS SpanAttributes,
    Duration,
    StatusCode,
    toValidUTF8(source.StatusMessage) AS StatusMessage,
    arrayFilter(n -> n = 'exception' OR startsWith(n, 'gen_ai.'), source.`Events.Name`) AS `Events.Name`,
    arrayMap(
        m -> CAST(mapApply((k, v) -> (toValidUTF8(k), toValidUTF8(v)), m), 'Map(String, String)'),
        arrayFilter((m, n) -> n = 'exception' OR startsWith(n, 'gen_ai.'), source.`Events.Attributes`, source.`Events.Name`)
    ) AS `Events.Attributes`,
    arrayMap(id -> toValidUTF8(id), source.`Links.TraceId`) AS `Links.TraceId`,
    arrayMap(id -> toValidUTF8(id), source.`Links.SpanId`) AS `Links.SpanId`,
    CAST(
        mapApply(
            (k, v) -> (toValidUTF8(k), toValidUTF8(v)),
            mapFilter((k, v) -> k IN ('host.name', 'process.pid', 'service.instance.id'), source.ResourceAttributes)
        ),
        'Map(String, String)'
    ) AS ResourceAttributes,
    DroppedAttributesCount,
    IngestedAt,
    multiIf(
        GenAiResponseId != '', GenAiResponseId,
        source.SpanAttributes['openinference.span.kind'] = 'LLM',
        JSONExtractString(source.SpanAttributes['output.value'], 'id'),
        source.SpanAttributes['ai.response.id']
    ) AS response_id,
    GenAiConversationId AS conversation_id,
    SessionId AS session_id,
    SpanloopEpisodeId AS episode_key
FROM otel_traces AS source
WHERE source.TraceId IN {trace_ids:Array(String)}
    AND source.Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
    AND source.Timestamp <= fromUnixTimestamp64Nano({until_ns:Int64}, 'UTC')
