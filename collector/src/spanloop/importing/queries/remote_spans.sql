-- The spans of given traces in a time range of a remote span table, as rows of otel_traces.
SELECT
    source.Timestamp AS Timestamp,
    source.TraceId AS TraceId,
    source.SpanId AS SpanId,
    source.ParentSpanId AS ParentSpanId,
    source.TraceState AS TraceState,
    toValidUTF8(source.SpanName) AS SpanName,
    initcap(lower(replaceOne(source.SpanKind, 'SPAN_KIND_', ''))) AS SpanKind,
    toValidUTF8(source.ServiceName) AS ServiceName,
    CAST(mapApply((k, v) -> (toValidUTF8(k), toValidUTF8(v)), source.ResourceAttributes), 'Map(String, String)') AS ResourceAttributes,
    toValidUTF8(source.ScopeName) AS ScopeName,
    toValidUTF8(source.ScopeVersion) AS ScopeVersion,
    CAST(
        mapApply(
            (k, v) -> (toValidUTF8(k), toValidUTF8(v)),
            mapFilter((k, v) -> NOT has({leaking_keys:Array(String)}, k), source.SpanAttributes)
        ),
        'Map(String, String)'
    ) AS SpanAttributes,
    CAST(map(), 'Map(String, String)') AS ScopeAttributes,
    toUInt64(greatest(toInt64(source.Duration), 0)) AS Duration,
    initcap(lower(replaceOne(source.StatusCode, 'STATUS_CODE_', ''))) AS StatusCode,
    toValidUTF8(source.StatusMessage) AS StatusMessage,
    source.`Events.Timestamp` AS `Events.Timestamp`,
    arrayMap(n -> toValidUTF8(n), source.`Events.Name`) AS `Events.Name`,
    arrayMap(
        m -> CAST(
            mapApply(
                (k, v) -> (toValidUTF8(k), toValidUTF8(v)),
                mapFilter((k, v) -> NOT has({leaking_keys:Array(String)}, k), m)
            ),
            'Map(String, String)'
        ),
        source.`Events.Attributes`
    ) AS `Events.Attributes`,
    source.`Links.TraceId` AS `Links.TraceId`,
    source.`Links.SpanId` AS `Links.SpanId`,
    source.`Links.TraceState` AS `Links.TraceState`,
    arrayMap(
        m -> CAST(mapApply((k, v) -> (toValidUTF8(k), toValidUTF8(v)), m), 'Map(String, String)'), source.`Links.Attributes`
    ) AS `Links.Attributes`
FROM {table:Identifier} AS source
WHERE source.Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
    AND source.Timestamp < fromUnixTimestamp64Nano({until_ns:Int64}, 'UTC')
    AND source.TraceId IN {trace_ids:Array(String)}
