-- Number of model calls, roots of traces, captures and scores in the store.
SELECT
    (SELECT count() FROM otel_traces WHERE GenAiOperation = 'chat') AS spans,
    (SELECT count() FROM otel_traces WHERE ParentSpanId = '') AS roots,
    (SELECT count() FROM generations FINAL) AS captures,
    (SELECT count() FROM scores FINAL WHERE is_deleted = 0) AS scores
