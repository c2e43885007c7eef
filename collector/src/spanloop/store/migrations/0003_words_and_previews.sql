-- What lists show and search: the begin of each message, the tools that a step calls, and an index of words.
-- words is an ALIAS, which takes no room; the index is over it. Two backslashes become spaces first, so that the n of a
-- path like C:\new is no line break. New parts get the index when they are merged, see the client's insert settings.
ALTER TABLE episode_messages ADD COLUMN IF NOT EXISTS role LowCardinality(String) MATERIALIZED JSONExtractString(message, 'role');

ALTER TABLE episode_messages ADD COLUMN IF NOT EXISTS preview String MATERIALIZED
    leftUTF8(arrayStringConcat(arrayFilter(text -> text != '', arrayMap(
        part -> multiIf(part.1 = 'text', part.2, part.1 = 'tool_call', concat(part.3, '(', part.4, ')'), part.1 = 'tool_call_response', part.5, ''),
        JSONExtract(message, 'parts', 'Array(Tuple(type String, content String, name String, arguments String, response String))')
    )), ' '), 300) CODEC(ZSTD(1));

ALTER TABLE episode_messages ADD COLUMN IF NOT EXISTS words String ALIAS
    lower(replaceAll(replaceAll(replaceAll(replaceAll(message, '\\\\', '  '), '\\n', '  '), '\\t', '  '), '\\r', '  '));

ALTER TABLE transition_rows ADD COLUMN IF NOT EXISTS preview String MATERIALIZED
    leftUTF8(arrayStringConcat(arrayFilter(text -> text != '', arrayMap(
        part -> multiIf(part.1 = 'text', part.2, part.1 = 'tool_call', concat(part.3, '(', part.4, ')'), ''),
        JSONExtract(action, 'parts', 'Array(Tuple(type String, content String, name String, arguments String))')
    )), ' '), 300) CODEC(ZSTD(1));

ALTER TABLE transition_rows ADD COLUMN IF NOT EXISTS tool_names Array(LowCardinality(String)) MATERIALIZED
    arrayFilter(name -> name != '', arrayMap(part -> part.1, JSONExtract(action, 'parts', 'Array(Tuple(name String))')));

ALTER TABLE transition_rows ADD COLUMN IF NOT EXISTS words String ALIAS
    lower(replaceAll(replaceAll(replaceAll(replaceAll(action, '\\\\', '  '), '\\n', '  '), '\\t', '  '), '\\r', '  '));

ALTER TABLE failures ADD COLUMN IF NOT EXISTS words String ALIAS lower(message);

ALTER TABLE episode_messages ADD INDEX IF NOT EXISTS idx_words words TYPE text(tokenizer = splitByNonAlpha, posting_list_codec = 'bitpacking');

ALTER TABLE transition_rows ADD INDEX IF NOT EXISTS idx_words words TYPE text(tokenizer = splitByNonAlpha, posting_list_codec = 'bitpacking');

ALTER TABLE failures ADD INDEX IF NOT EXISTS idx_words words TYPE text(tokenizer = splitByNonAlpha, posting_list_codec = 'bitpacking');

ALTER TABLE episode_messages MATERIALIZE INDEX IF EXISTS idx_words;

ALTER TABLE transition_rows MATERIALIZE INDEX IF EXISTS idx_words;

ALTER TABLE failures MATERIALIZE INDEX IF EXISTS idx_words;
