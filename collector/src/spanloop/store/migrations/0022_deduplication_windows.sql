-- Several collectors insert into these tables. The blocks of the others must not push a block out of the window while its
-- collector is down and has not seen the answer to its insert.
ALTER TABLE otel_traces MODIFY SETTING non_replicated_deduplication_window = 50000;

ALTER TABLE otel_logs MODIFY SETTING non_replicated_deduplication_window = 50000;

ALTER TABLE trace_summaries MODIFY SETTING non_replicated_deduplication_window = 50000;

ALTER TABLE log_summaries MODIFY SETTING non_replicated_deduplication_window = 50000;
