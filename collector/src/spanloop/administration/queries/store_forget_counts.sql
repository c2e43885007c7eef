-- Number of spans, log records, captures and dead letters of the given traces.
SELECT
    (SELECT count() FROM otel_traces WHERE TraceId IN {trace_ids:Array(String)}) AS spans,
    (SELECT count() FROM otel_logs WHERE TraceId IN {trace_ids:Array(String)}) AS log_records,
    (SELECT count() FROM generations FINAL WHERE trace_id IN {trace_ids:Array(String)}) AS captures,
    (SELECT count() FROM dead_letters FINAL WHERE hasAny(trace_ids, {trace_ids:Array(String)})) AS dead_letters
