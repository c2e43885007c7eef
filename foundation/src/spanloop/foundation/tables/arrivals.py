"""Tables of what arrives: spans, log records, scores, captured generations and dead letters."""

from typing import Final

from .column import LOW_CARDINALITY, STRING_MAP, TIME_NS, TIME_US, Column, Table

OTEL_TRACES: Final = Table(
    "otel_traces",
    (
        Column("Timestamp", "DateTime64(9)", "start of the span"),
        Column("TraceId", "String", "32 hex digits"),
        Column("SpanId", "String", "16 hex digits"),
        Column("ParentSpanId", "String", "16 hex digits; empty for a root span"),
        Column("TraceState", "String", "W3C trace state"),
        Column("SpanName", LOW_CARDINALITY, "name of the span"),
        Column("SpanKind", LOW_CARDINALITY, "`Internal`, `Server`, `Client`, `Producer`, `Consumer` or `Unspecified`"),
        Column("ServiceName", LOW_CARDINALITY, "`service.name` of the resource"),
        Column("ResourceAttributes", STRING_MAP, "attributes of the resource"),
        Column("ScopeName", "String", "name of the instrumentation scope"),
        Column("ScopeVersion", "String", "version of the instrumentation scope"),
        Column("SpanAttributes", STRING_MAP, "attributes of the span; arrays and maps as JSON"),
        Column("Duration", "UInt64", "nanoseconds from the start to the end"),
        Column("StatusCode", LOW_CARDINALITY, "`Unset`, `Ok` or `Error`"),
        Column("StatusMessage", "String", "description of the status"),
        Column("Events.Timestamp", "Array(DateTime64(9))", "time of each span event"),
        Column("Events.Name", "Array(LowCardinality(String))", "name of each span event"),
        Column("Events.Attributes", "Array(Map(LowCardinality(String), String))", "attributes of each span event"),
        Column("Links.TraceId", "Array(String)", "trace of each link"),
        Column("Links.SpanId", "Array(String)", "span of each link"),
        Column("Links.TraceState", "Array(String)", "W3C trace state of each link"),
        Column("Links.Attributes", "Array(Map(LowCardinality(String), String))", "attributes of each link"),
        Column("ResourceAttributeItems", "Array(String)", "`name=value` of each attribute of the resource", "ALIAS"),
        Column("SpanAttributeItems", "Array(String)", "`name=value` of each attribute of the span", "ALIAS"),
        Column("IngestedAt", TIME_US, "when the row was inserted", "DEFAULT"),
        Column("TraceFlags", "UInt32", "W3C trace flags and OTLP's flags", "DEFAULT"),
        Column("ResourceSchemaUrl", LOW_CARDINALITY, "schema URL of the resource", "DEFAULT"),
        Column("ScopeSchemaUrl", LOW_CARDINALITY, "schema URL of the scope", "DEFAULT"),
        Column("ScopeAttributes", STRING_MAP, "attributes of the instrumentation scope"),
        Column("DroppedAttributesCount", "UInt32", "attributes that the SDK dropped", "DEFAULT"),
        Column("DroppedEventsCount", "UInt32", "span events that the SDK dropped", "DEFAULT"),
        Column("DroppedLinksCount", "UInt32", "links that the SDK dropped", "DEFAULT"),
        Column("GenAiOperation", LOW_CARDINALITY, "attribute `gen_ai.operation.name`", "MATERIALIZED"),
        Column("GenAiRequestModel", LOW_CARDINALITY, "attribute `gen_ai.request.model`", "MATERIALIZED"),
        Column("GenAiResponseModel", LOW_CARDINALITY, "attribute `gen_ai.response.model`", "MATERIALIZED"),
        Column("GenAiResponseId", "String", "attribute `gen_ai.response.id`", "MATERIALIZED"),
        Column("GenAiConversationId", "String", "attribute `gen_ai.conversation.id`", "MATERIALIZED"),
        Column("GenAiAgentName", LOW_CARDINALITY, "attribute `gen_ai.agent.name`", "MATERIALIZED"),
        Column("GenAiToolName", LOW_CARDINALITY, "attribute `gen_ai.tool.name`", "MATERIALIZED"),
        Column("GenAiToolCallId", "String", "attribute `gen_ai.tool.call.id`", "MATERIALIZED"),
        Column("GenAiInputTokens", "UInt32", "attribute `gen_ai.usage.input_tokens`; 0 without one", "MATERIALIZED"),
        Column("GenAiOutputTokens", "UInt32", "attribute `gen_ai.usage.output_tokens`; 0 without one", "MATERIALIZED"),
        Column("ErrorType", LOW_CARDINALITY, "attribute `error.type`", "MATERIALIZED"),
        Column("SessionId", "String", "attribute `session.id`", "MATERIALIZED"),
        Column("SpanloopTaskId", "String", "attribute `spanloop.task.id`", "MATERIALIZED"),
        Column("SpanloopEpisodeId", "String", "attribute `spanloop.episode.id`", "MATERIALIZED"),
        Column(
            "IsModelCall",
            "Bool",
            "whether the span may be a model call, in any dialect; wider than the dialects are",
            "MATERIALIZED",
        ),
    ),
)
"""Spans: the columns of the OpenTelemetry ClickHouse exporter's table, then spanloop's."""

OTEL_LOGS: Final = Table(
    "otel_logs",
    (
        Column("Timestamp", "DateTime64(9)", "time of the record"),
        Column("TraceId", "String", "trace of the record's span, 32 hex digits; empty without one"),
        Column("SpanId", "String", "the record's span, 16 hex digits; empty without one"),
        Column("TraceFlags", "UInt8", "W3C trace flags"),
        Column("SeverityText", LOW_CARDINALITY, "severity as the app named it"),
        Column("SeverityNumber", "UInt8", "OpenTelemetry severity, 1 to 24; 0 without one"),
        Column("ServiceName", LOW_CARDINALITY, "`service.name` of the resource"),
        Column("Body", "String", "text, or JSON of a structured body"),
        Column("ResourceSchemaUrl", LOW_CARDINALITY, "schema URL of the resource"),
        Column("ResourceAttributes", STRING_MAP, "attributes of the resource"),
        Column("ScopeSchemaUrl", LOW_CARDINALITY, "schema URL of the scope"),
        Column("ScopeName", "String", "name of the instrumentation scope"),
        Column("ScopeVersion", LOW_CARDINALITY, "version of the instrumentation scope"),
        Column("ScopeAttributes", STRING_MAP, "attributes of the instrumentation scope"),
        Column("LogAttributes", STRING_MAP, "attributes of the record"),
        Column("EventName", "String", "name of the event; empty for a plain record"),
        Column("IngestedAt", TIME_US, "when the row was inserted", "DEFAULT"),
        Column(
            "SpanEventName",
            LOW_CARDINALITY,
            "event name of a record that describes its span, as instrumentors send messages and exceptions; empty "
            "for all others",
            "MATERIALIZED",
        ),
    ),
)
"""Log records: the columns of the OpenTelemetry ClickHouse exporter's table, then spanloop's."""

SCORES: Final = Table(
    "scores",
    (
        Column("score_id", "String", "key of the score: the last write counts"),
        Column("name", LOW_CARDINALITY, "name of the score; `reward` is a reward, `spanloop.mark` a mark"),
        Column("value", "Float64", "higher is better"),
        Column("label", "String", "word for the value, or the label of a mark"),
        Column("comment", "String", "text of whoever gave the score"),
        Column("source", LOW_CARDINALITY, "origin of the score: a user, a judge model or a program"),
        Column("trace_id", "String", "the trace; empty without one"),
        Column("span_id", "String", "a span of the trace; empty without one"),
        Column("response_id", "String", "id of a chat completion; empty without one"),
        Column("session_id", "String", "the session; empty without one"),
        Column(
            "episode_key",
            "String",
            "`spanloop.episode.id` of the app, not the converter's episode id; empty without one",
        ),
        Column("task_id", "String", "the task; empty without one"),
        Column("scored_at", TIME_NS, "time of the score"),
        Column("ingested_at", TIME_US, "when the row was inserted", "DEFAULT"),
        Column("is_deleted", "UInt8", "1: the score was deleted", "DEFAULT"),
    ),
)
"""Rewards, ratings and marks; the target ids that are filled in name what the score rates."""

GENERATIONS: Final = Table(
    "generations",
    (
        Column("generation_id", "String", "response id, slash, choice index"),
        Column("response_id", "String", "id of the chat completion"),
        Column("choice_index", "UInt16", "index of the choice in the response"),
        Column("trace_id", "String", "from the caller's traceparent; empty without one"),
        Column("parent_span_id", "String", "from the caller's traceparent: the span that made the HTTP call"),
        Column("model", LOW_CARDINALITY, "name of the model in the request"),
        Column("policy_version", LOW_CARDINALITY, "the weight version that answered, name@version"),
        Column(
            "tokenizer",
            LOW_CARDINALITY,
            "fingerprint of tokenizer and chat template of these weights; empty where the gateway does not know it",
        ),
        Column("prompt_token_ids", "Array(UInt32)", "ids of the prompt as the engine saw it"),
        Column("response_token_ids", "Array(UInt32)", "ids that were sampled"),
        Column("logprobs", "Array(Float32)", "natural log, parallel to response_token_ids"),
        Column("finish_reason", LOW_CARDINALITY, "as the engine reported it"),
        Column("is_complete", "Bool", "false when the stream broke or the caller went away"),
        Column("sampling", STRING_MAP, "temperature, top_p, seed, … as sent"),
        Column("started_at", TIME_NS, "when the request arrived"),
        Column("duration_ns", "UInt64", "nanoseconds from the request to the end of the response"),
        Column("ingested_at", TIME_US, "when the row was inserted", "DEFAULT"),
    ),
)
"""One row for each choice that the gateway's engine sampled."""

DEAD_LETTERS: Final = Table(
    "dead_letters",
    (
        Column("dead_letter_id", "String", "32 hex digits of the content's hash"),
        Column("received_at", TIME_NS, "when the request arrived"),
        Column("signal", LOW_CARDINALITY, "traces, logs, or the kind of an unreadable spool record"),
        Column("reason", LOW_CARDINALITY, "why it was not accepted"),
        Column("detail", "String", "got and expected, of the first item"),
        Column("content_type", LOW_CARDINALITY, "encoding of the raw body: protobuf or JSON"),
        Column("raw_base64", "String", "a whole request body with these items and nothing else"),
        Column("item_count", "UInt32", "number of spans or records"),
        Column("trace_ids", "Array(String)", "trace ids of the first 100 items, without repetition"),
        Column("span_ids", "Array(String)", "span ids of the first 100 items, without repetition"),
        Column("replayed_at", TIME_NS, "1970 until it was accepted", "DEFAULT"),
        Column("written_at", TIME_US, "when the row was inserted", "DEFAULT"),
    ),
)
"""What could not be accepted, as it came."""
