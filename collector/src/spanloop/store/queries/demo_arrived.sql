-- How many model calls, captures and scores have arrived.
SELECT
    (SELECT count() FROM otel_traces WHERE GenAiOperation = 'chat') AS spans,
    (SELECT count() FROM generations FINAL) AS captures,
    (SELECT count() FROM scores FINAL WHERE is_deleted = 0) AS scores
