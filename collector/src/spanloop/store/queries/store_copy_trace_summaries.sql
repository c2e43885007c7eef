-- What the summaries of traces say, whatever order their sets are in: how many there are, and a sum of hashes.
SELECT
    count() AS summaries,
    sum(cityHash64(ten_minutes, trace_id, started_at, ended_at, root_name, length(spans), length(failed_spans), length(calls))) AS said
FROM trace_summaries
SETTINGS final = 1
