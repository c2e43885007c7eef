-- The episode ids of the app that other traces than the given ones have too.
SELECT DISTINCT SpanloopEpisodeId AS episode_key
FROM otel_traces
WHERE SpanloopEpisodeId IN {episode_keys:Array(String)} AND TraceId NOT IN {trace_ids:Array(String)}
