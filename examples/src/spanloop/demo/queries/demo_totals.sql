-- Totals of the store: spans, model calls, captures, episodes, transitions and token rows.
-- Joins: local by episode.
WITH current AS (SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0)
SELECT
    (SELECT count() FROM otel_traces) AS spans,
    (SELECT count() FROM otel_traces WHERE GenAiOperation = 'chat') AS model_calls,
    (SELECT count() FROM generations FINAL) AS captures,
    (SELECT count() FROM episodes FINAL WHERE is_deleted = 0) AS episodes,
    (SELECT count() FROM transitions WHERE (episode_id, revision) IN current) AS transitions,
    (SELECT countIf(is_trainable) FROM transitions WHERE (episode_id, revision) IN current) AS trainable,
    (SELECT count() FROM trajectories FINAL WHERE (episode_id, revision) IN current) AS token_rows
