-- Rows of single revisions, and rows of all current revisions, are read with less.
--
-- The keys of these two tables lead with the episode's random id, so ids lie in granules of every part. A part holds what was
-- inserted at about one time, so its revisions are near each other: parts without the revisions that are asked for are not read.
ALTER TABLE transition_rows ADD INDEX IF NOT EXISTS idx_revision revision TYPE minmax GRANULARITY 64;

ALTER TABLE episode_messages ADD INDEX IF NOT EXISTS idx_revision revision TYPE minmax GRANULARITY 64;

ALTER TABLE transition_rows MATERIALIZE INDEX IF EXISTS idx_revision;

ALTER TABLE episode_messages MATERIALIZE INDEX IF EXISTS idx_revision;

-- A page of all time reads 8 bytes of each row instead of its ids, to compare it with the current revisions.
ALTER TABLE episode_summaries ADD COLUMN IF NOT EXISTS revision_hash UInt64 MATERIALIZED cityHash64(episode_id, revision) CODEC(ZSTD(1));

ALTER TABLE step_summaries ADD COLUMN IF NOT EXISTS revision_hash UInt64 MATERIALIZED cityHash64(episode_id, revision) CODEC(ZSTD(1));

ALTER TABLE failure_summaries ADD COLUMN IF NOT EXISTS revision_hash UInt64 MATERIALIZED cityHash64(episode_id, revision) CODEC(ZSTD(1));

-- The tools of a step, one for each call: those in the model's answer, and those that only spans name.
ALTER TABLE step_summaries ADD COLUMN IF NOT EXISTS called_tools Array(LowCardinality(String))
    MATERIALIZED arrayConcat(tool_names, arrayFilter(tool -> NOT has(tool_names, tool), result_tools));

ALTER TABLE episode_summaries MATERIALIZE COLUMN revision_hash;

ALTER TABLE step_summaries MATERIALIZE COLUMN revision_hash, MATERIALIZE COLUMN called_tools;

ALTER TABLE failure_summaries MATERIALIZE COLUMN revision_hash;
