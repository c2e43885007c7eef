-- Number of trace summaries, and a sum of hashes that does not depend on the order of the sets in them.
SELECT
    count() AS summaries,
    sum(cityHash64(ten_minutes, trace_id, started_at, ended_at, root_name, length(spans), length(failed_spans), length(calls))) AS content_hash
FROM trace_summaries
SETTINGS final = 1
