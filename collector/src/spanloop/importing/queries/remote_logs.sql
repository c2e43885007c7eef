-- A page of the records about a model call, its exception or an evaluation in a time range of a remote log table, as rows of otel_logs.
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
    toValidUTF8(event_name) AS EventName
FROM (
    -- Older tables have no column EventName.
    SELECT
        Timestamp, TraceId, SpanId, TraceFlags, SeverityText, SeverityNumber, ServiceName, Body, ResourceAttributes,
        ResourceSchemaUrl, ScopeSchemaUrl, ScopeName, ScopeVersion, ScopeAttributes, LogAttributes, concat('', COLUMNS('^EventName$'), '') AS event_name_column, if(event_name_column != '', event_name_column, LogAttributes['event.name']) AS event_name
    FROM {logs_table:Identifier}
    WHERE Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
        AND Timestamp < fromUnixTimestamp64Nano({until_ns:Int64}, 'UTC')
)
WHERE (startsWith(event_name, 'gen_ai.') OR (event_name IN ('exception', 'api_request_body', 'api_response_body') AND SpanId != '')
    OR (SpanId != '' AND startsWith(Body, '{') AND position(Body, '"messages"') > 0
        AND (JSONHas(Body, 'input', 'messages') OR JSONHas(Body, 'output', 'messages'))))
    AND cityHash64(TraceId, SpanId, Timestamp) % {parts:UInt32} = {part:UInt32}
