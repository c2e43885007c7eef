-- Keep the rows of trace_summaries for so many days after arrival; the sum is capped, because DateTime ends in 2106.
ALTER TABLE trace_summaries MODIFY TTL
    toDateTime(least(toUnixTimestamp(toDateTime(ingested_at)) + 86400 * toUInt64({days:UInt32}), 4294967295))
