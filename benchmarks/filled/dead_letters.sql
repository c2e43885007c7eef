-- One dead letter for every thousand episodes.
INSERT INTO dead_letters (
    dead_letter_id, received_at, signal, reason, detail, content_type, raw_base64, item_count, trace_ids, span_ids
)
SELECT
    lower(hex(sipHash128('letter', number))), now64(9, 'UTC') - toIntervalSecond(number % 1000), 'traces', 'bad_trace_id',
    'expected a trace id of 16 bytes', 'application/x-protobuf', repeat('A', 2000), 1, [], []
FROM numbers(intDiv({first:UInt64}, 1000), intDiv({episodes:UInt64} + 999, 1000))
