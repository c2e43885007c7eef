-- One span with its attributes, resource and events as JSON.
SELECT
    SpanName AS name,
    ServiceName AS service_name,
    ScopeName AS scope_name,
    StatusCode AS status,
    StatusMessage AS status_message,
    toJSONString(SpanAttributes) AS attributes,
    toJSONString(ResourceAttributes) AS resource,
    toJSONString(arrayMap((name, attributes) -> map('event', toString(name), 'attributes', toJSONString(attributes)), Events.Name, Events.Attributes)) AS events
FROM otel_traces
WHERE Timestamp >= fromUnixTimestamp64Nano({start_ns:Int64}, 'UTC')
    AND Timestamp <= fromUnixTimestamp64Nano({start_ns:Int64}, 'UTC')
    AND TraceId = {trace_id:String} AND SpanId = {span_id:String}
LIMIT 1
