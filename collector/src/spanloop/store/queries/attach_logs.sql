-- A page of the records that tell of a model call, its exception or an evaluation, of one stretch of time of a foreign log table, as rows of otel_logs.
SELECT
    Timestamp,
    TraceId,
    SpanId,
    toUInt8(TraceFlags) AS TraceFlags,
    toValidUTF8(SeverityText) AS SeverityText,
    toUInt8(SeverityNumber) AS SeverityNumber,
    toValidUTF8(ServiceName) AS ServiceName,
    toValidUTF8(Body) AS Body,
    CAST(mapApply((k, v) -> (toValidUTF8(k), toValidUTF8(v)), ResourceAttributes), 'Map(String, String)') AS ResourceAttributes,
    toValidUTF8(ResourceSchemaUrl) AS ResourceSchemaUrl,
    toValidUTF8(ScopeSchemaUrl) AS ScopeSchemaUrl,
    toValidUTF8(ScopeName) AS ScopeName,
    toValidUTF8(ScopeVersion) AS ScopeVersion,
    CAST(mapApply((k, v) -> (toValidUTF8(k), toValidUTF8(v)), ScopeAttributes), 'Map(String, String)') AS ScopeAttributes,
    CAST(mapApply((k, v) -> (toValidUTF8(k), toValidUTF8(v)), LogAttributes), 'Map(String, String)') AS LogAttributes,
    toValidUTF8(told) AS EventName
FROM (
    -- Older tables have no column EventName.
    SELECT
        Timestamp, TraceId, SpanId, TraceFlags, SeverityText, SeverityNumber, ServiceName, Body, ResourceAttributes,
        ResourceSchemaUrl, ScopeSchemaUrl, ScopeName, ScopeVersion, ScopeAttributes, LogAttributes, concat('', COLUMNS('^EventName$'), '') AS named, if(named != '', named, LogAttributes['event.name']) AS told
    FROM {logs_table:Identifier}
    WHERE Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
        AND Timestamp < fromUnixTimestamp64Nano({until_ns:Int64}, 'UTC')
)
WHERE (startsWith(told, 'gen_ai.') OR (told = 'exception' AND SpanId != ''))
    AND cityHash64(TraceId, SpanId, Timestamp) % {parts:UInt32} = {part:UInt32}
