-- Keep the rows of otel_logs for so many days after arrival; the sum is capped, because DateTime ends in 2106.
ALTER TABLE otel_logs MODIFY TTL
    toDateTime(least(toUnixTimestamp(toDateTime(IngestedAt)) + 86400 * toUInt64({days:UInt32}), 4294967295))
