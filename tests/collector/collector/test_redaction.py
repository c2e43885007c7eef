"""Redaction on every route and in every encoding; everything else is unchanged."""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import asyncio
import base64
import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import grpc
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from spanloop.collector.__main__ import main
from spanloop.collector.otlp.wire import MalformedError
from spanloop.collector.redaction.re2_patterns import Pattern, make_prefilter
from spanloop.collector.redaction.redactor import Redactor
from spanloop.collector.redaction.rules import Rule, builtin, load_rules, read_rules
from spanloop.collector.validation import JSON, PROTOBUF, Signal, Validation, dead_letter_of_body, validate_request
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.pipeline import run
from spanloop.store import Store
from spanloop.store.client import Address, Connection

from .collectors import Launcher, trace_request

SECRET = "hunter2-hunter2"
EMAIL = "alice.b+x@mail.example.com"
Place = Callable[[ExportTraceServiceRequest, KeyValue], None]
EMAILS = Redactor([builtin("emails")])

IN_SPAN: Mapping[str, Place] = {
    "span": lambda request, pair: request.resource_spans[0].scope_spans[0].spans[0].attributes.append(pair),
    "event": lambda request, pair: (
        request.resource_spans[0].scope_spans[0].spans[0].events.add().attributes.append(pair)
    ),
    "link": lambda request, pair: request.resource_spans[0].scope_spans[0].spans[0].links.add().attributes.append(pair),
    "resource": lambda request, pair: request.resource_spans[0].resource.attributes.append(pair),
    "scope": lambda request, pair: request.resource_spans[0].scope_spans[0].scope.attributes.append(pair),
}


def text(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def within(key: str, *pairs: KeyValue) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(kvlist_value=KeyValueList(values=pairs)))


HEADERS = json.dumps({"Authorization": f"Bearer {SECRET}", "accept": "text/html"})
CARRIERS: Mapping[str, KeyValue] = {
    "all headers": text("gen_ai.headers", f"{{'Authorization': 'Bearer {SECRET}'}}"),
    "a header": text("http.request.header.authorization", f"Bearer {SECRET}"),
    "a header as HTTP has it": text("http.request.header.Proxy-Authorization", SECRET),
    "a cookie": text("http.request.header.cookie", SECRET),
    "a list": KeyValue(
        key="http.request.header.x-api-key",
        value=AnyValue(array_value=ArrayValue(values=[AnyValue(string_value=SECRET)])),
    ),
    "a setting": text("llm.openai.api_key", SECRET),
    "nested": within("request", within("headers", text("Authorization", SECRET)), text("model", "m")),
    "nested in a list": KeyValue(
        key="calls",
        value=AnyValue(
            array_value=ArrayValue(values=[AnyValue(kvlist_value=KeyValueList(values=[text("apiKey", SECRET)]))])
        ),
    ),
    "json": text("llm.invocation_parameters", json.dumps({"model": "m", "extra_headers": json.loads(HEADERS)})),
    "json in json": text("input.value", json.dumps({"kwargs": HEADERS, "n": 1.50})),
    "json in json with half an emoji": text("input.value", json.dumps({"kwargs": '{"a":"\ud83d",' + HEADERS[1:]})),
    "json that was cut off": text("input.value", HEADERS[:-12]),
    "a printed dict": text("args", f"create(headers={{'api_key': '{SECRET}', 'n': 1}})"),
    "json within prose": text("k", f'it said "api-key": "{SECRET}" and left'),
    "json that was cut off within": text("input.value", HEADERS[:-28]),
    "bytes": KeyValue(key="body", value=AnyValue(bytes_value=HEADERS.encode())),
}


def request_with(place: str, pair: KeyValue) -> ExportTraceServiceRequest:
    request = trace_request(1, 2)
    IN_SPAN[place](request, pair)
    return request


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("place", IN_SPAN)
def test_credentials_do_not_pass_wherever_they_are(place: str, carrier: str) -> None:
    validation = validate_request(Signal.TRACES, request_with(place, CARRIERS[carrier]).SerializeToString())
    assert SECRET.encode() not in validation.body
    assert (validation.accepted, validation.redacted) == (2, {"known_leaks": 1})
    assert validation.body.count(b"spanloop.redacted") == 1


@pytest.mark.parametrize("carrier", CARRIERS)
def test_credentials_do_not_pass_in_logs(carrier: str) -> None:
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add()
    record.attributes.append(CARRIERS[carrier])
    record.body.kvlist_value.values.append(CARRIERS[carrier])
    validation = validate_request(Signal.LOGS, request.SerializeToString())
    assert SECRET.encode() not in validation.body
    assert (validation.accepted, validation.redacted) == (1, {"known_leaks": 2})


def test_a_request_that_no_rule_changes_keeps_its_bytes() -> None:
    prose = "the authorization of an api_key is what `headers: {'x': 1}` says"
    tools = json.dumps([{"name": "f", "parameters": {"properties": {"api_key": {"type": "string"}}}}])
    for value in (prose, tools, json.dumps({"required": ["api_key"], "authorization": ""})):
        request = request_with("span", text("gen_ai.input.messages", value))
        # Written in an order that the runtime would not write.
        body = b"".join(
            each.SerializeToString()
            for each in (request, ExportTraceServiceRequest(resource_spans=request.resource_spans[:1]))
        )
        for redactor in (Redactor(), EMAILS):
            validation = validate_request(Signal.TRACES, body, redactor=redactor)
            assert validation.body == body
            assert not validation.redacted


@pytest.mark.parametrize(
    ("name", "hits", "misses"),
    [
        ("emails", [EMAIL, "x@y.de,"], ["@mention", "user@localhost", "a @ b.com"]),
        (
            "credit_cards",
            ["4111 1111 1111 1111", "5555-5555-5555-4444", "378282246310005"],
            ["4111 1111 1111 1112", "0.4111111111111111", "1790000000000000000", "41111111111111111"],
        ),
        (
            "bearer_tokens",
            ["Bearer abcdefgh01234567", "basic QWxhZGRpbjpvcGVuIH==", "eyJhbGciOiJIU.eyJzdWIiOiIxMjM0.SflKxwRJSM"],
            ["bearer of bad news", "basic arithmetic"],
        ),
        (
            "api_keys",
            ["sk-proj-abcdefghijklmnopqrst", "ghp_" + "a" * 36, "AKIAIOSFODNN7EXAMPLE", "hf_" + "b" * 34],
            ["task-abcdefghijklmnopqrstuvwxyz", "sk-short", "AKIA"],
        ),
    ],
)  # fmt: skip
def test_builtin_rules_match_only_their_texts(name: str, hits: list[str], misses: list[str]) -> None:
    redactor = Redactor([builtin(name)])
    for hit in hits:
        for value in (hit, f"it is {hit}.", json.dumps([{"content": f"\n{hit}\n"}])):
            validation = validate_request(
                Signal.TRACES, request_with("span", text("k", value)).SerializeToString(), redactor=redactor
            )
            assert validation.redacted == {name: 1}, value
            assert hit.strip(",").encode() not in validation.body
    for miss in misses:
        assert redactor.redact_text(f"it is {miss} here")[0] == f"it is {miss} here"


def rule(name: str, pattern: str) -> Rule:
    return Rule(name, "", make_prefilter(pattern), Pattern(pattern), is_dropped=False, replacement="__REDACTED__")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just(f"mail {EMAIL}, now"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def masked(value: object) -> object:
    if isinstance(value, str):
        # JSON within JSON is masked as JSON.
        try:
            nested: object = json.loads(value, strict=False) if value.lstrip()[:1] in {"{", "[", '"'} else None
        except ValueError:
            nested = None
        return value if nested is not None else value.replace(EMAIL, "__REDACTED__")
    if isinstance(value, list):
        return [masked(each) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: masked(each) for key, each in cast("dict[str, object]", value).items()}
    return value


@given(JSON_VALUES, st.sampled_from(["ascii", "utf-8"]))
def test_json_stays_json_and_differs_only_where_something_was_masked(value: object, charset: str) -> None:
    written = json.dumps({"value": value}, ensure_ascii=charset == "ascii")
    masked_text, hits = EMAILS.redact_text(written)
    assert json.loads(masked_text) == masked(json.loads(written))
    assert hits.total() == written.count(EMAIL)
    if not hits:
        assert masked_text == written


PATTERNS = [r"\bKD-\d{4}\b", r"^Müller$", r"secret: .{1,3}", r"[^a-z]{2}end", r"a/b", r"(?i)name=\w+", r"x\s+y"]
SAID = ["KD-1234", "Müller", "secret: ", "é", "\n", '"', "end", "a/b", "Name=z", "x", " ", "y", "\\", "#"]
WRITERS: list[Callable[[str], str]] = [
    str,
    json.dumps,
    lambda content_text: json.dumps([content_text], ensure_ascii=False),
    lambda content_text: json.dumps(json.dumps(content_text)),
    lambda content_text: json.dumps({"k": content_text}).replace("/", "\\/"),
]


@given(st.sampled_from(PATTERNS), st.lists(st.sampled_from(SAID), max_size=6).map("".join), st.sampled_from(WRITERS))
def test_the_prefilter_never_hides_a_match(pattern: str, content_text: str, written: Callable[[str], str]) -> None:
    redactor = Redactor([rule("it", pattern)])
    body = request_with("span", text("k", written(content_text))).SerializeToString()
    validation = validate_request(Signal.TRACES, body, redactor=redactor)
    is_hit = re.search(pattern, content_text) is not None and content_text.lstrip()[:1] != '"'
    if is_hit:
        assert validation.redacted.get("it", 0) >= 1
    again = validate_request(Signal.TRACES, validation.body, redactor=redactor)
    assert again.body == validation.body


def test_rule_names_accumulate_when_an_item_is_replayed() -> None:
    first = validate_request(Signal.TRACES, request_with("span", CARRIERS["a setting"]).SerializeToString())
    request = ExportTraceServiceRequest.FromString(first.body)
    span = request.resource_spans[0].scope_spans[0].spans[0]
    span.attributes.append(text("k", EMAIL))
    second = validate_request(Signal.TRACES, request.SerializeToString(), redactor=EMAILS)
    marked = ExportTraceServiceRequest.FromString(second.body).resource_spans[0].scope_spans[0].spans
    assert [pair.value.string_value for pair in marked[0].attributes] == ["emails,known_leaks", "__REDACTED__"]
    assert not marked[1].attributes


def rules_file(folder: Path, content: str) -> Path:
    path = folder / "redaction.toml"
    path.write_text(content)
    return path


RULES = """
builtin = ["emails"]

[[rule]]
name = "customer"
pattern = 'KD-\\d{4}'
replacement = "[customer]"
attribute = "gen_ai.*"

[[rule]]
name = "who"
attribute = "*user.name"

[[rule]]
name = "where"
attribute = "client.address"
action = "mask"
"""


def test_a_rules_file_is_applied(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert load_rules(data_dir) == ()
    redactor = Redactor(read_rules(rules_file(data_dir.path, RULES)))
    assert [each.name for each in load_rules(data_dir)] == ["emails", "customer", "who", "where"]
    request = trace_request(1)
    span = request.resource_spans[0].scope_spans[0].spans[0]
    span.name = f"mail to {EMAIL}"
    span.status.message = f"no such user {EMAIL}"
    span.attributes.extend(
        [
            text("gen_ai.prompt", "of KD-1234"), text("note", "of KD-1234"), text("enduser.name", "Alice"),
            within("enduser", text("name", "Alice"), text("id", "7")),
            KeyValue(key="client.address", value=AnyValue(int_value=7)),
        ]
    )  # fmt: skip
    validation = validate_request(Signal.TRACES, request.SerializeToString(), redactor=redactor)
    redacted_span = ExportTraceServiceRequest.FromString(validation.body).resource_spans[0].scope_spans[0].spans[0]
    assert (redacted_span.name, redacted_span.status.message) == ("mail to __REDACTED__", "no such user __REDACTED__")
    assert list(redacted_span.attributes) == [
        text("gen_ai.prompt", "of [customer]"), text("note", "of KD-1234"), text("enduser", '{"id":"7"}'),
        text("client.address", "__REDACTED__"), text("spanloop.redacted", "customer,emails,where,who"),
    ]  # fmt: skip
    assert validation.redacted == {"emails": 2, "customer": 1, "who": 2, "where": 1}
    other = tmp_path / "other.toml"
    other.write_text('builtin = ["api_keys"]')
    monkeypatch.setenv("SPANLOOP_REDACT", str(other))
    assert [each.name for each in load_rules(data_dir)] == ["api_keys"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("builtin = [", "end of document"),
        ('builtin = ["phones"]', "builtin: got 'phones', expected some of emails, credit_cards"),
        ("[[rule]]\nname = 'x'", "rule 'x' has neither attribute nor pattern"),
        ("[[rule]]\nname = 'x'\npattern = '(?<!a)b'", "rule 'x', pattern '(?<!a)b': invalid perl operator"),
        ("[[rule]]\nname = 'x'\npattern = 'a*'", "rule 'x', pattern 'a*' matches the empty text"),
        ("[[rule]]\nname = 'x'\npattern = 'a'\naction = 'drop'", "a pattern masks what it matches"),
        ("[[rule]]\nname = 'x'\npatern = 'a'", "rule 'x', patern: Extra inputs are not permitted"),
        ("[[rule]]\npattern = 'a'", "rule 1, name: Field required"),
        ("[[rule]]\nname = 'known_leaks'\npattern = 'a'", "known_leaks is the name of two rules"),
        ("rules = []", "rules: Extra inputs are not permitted"),
    ],
)
def test_an_invalid_rules_file_is_refused_at_the_start(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str], content: str, message: str
) -> None:
    path = rules_file(data_dir.path, content)
    assert main(["--data-dir", str(data_dir.path), "--port", "0"]) == ConfigurationError.exit_code
    printed = capsys.readouterr().err
    assert f"{path} are not usable: " in printed
    assert message in printed
    assert "spanloop redact test" in printed


def test_a_named_rules_file_has_to_exist(data_dir: DataDir, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="it cannot be read: No such file"):
        load_rules(data_dir, tmp_path / "nowhere.toml")


def letters_of(validation: Validation) -> bytes:
    return b"".join(letter.raw + letter.detail.encode() for letter in validation.dead_letters)


def test_dead_letters_are_redacted() -> None:
    request = request_with("span", text("k", EMAIL))
    request.resource_spans[0].scope_spans[0].spans[0].trace_id = b"short"
    validation = validate_request(Signal.TRACES, request.SerializeToString(), redactor=EMAILS)
    assert validation.rejected_total == 1
    assert EMAIL.encode() not in letters_of(validation)
    assert b"__REDACTED__" in letters_of(validation)


@pytest.mark.parametrize("escaped", [EMAIL, EMAIL.replace("@", "\\u0040"), EMAIL.replace(".", "\\u002e")])
def test_bytes_that_cannot_be_parsed_are_withheld(escaped: str) -> None:
    spans = f'[{{"name": "ok"}}, {{"name": 7, "traceId": "{escaped}"}}]'
    bad_item = f'{{"resourceSpans": [{{"scopeSpans": [{{"spans": {spans}}}]}}]}}'
    validation = validate_request(Signal.TRACES, bad_item.encode(), JSON, redactor=EMAILS)
    assert [letter.raw for letter in validation.dead_letters if letter.content_type == JSON] == [b""]
    assert b"mail" not in letters_of(validation)
    for body, content_type in (
        (f'{{"resourceSpans": "{escaped}"}}'.encode(), JSON),
        (f"\xff{EMAIL}".encode(), PROTOBUF),
    ):
        with pytest.raises(MalformedError) as caught:
            validate_request(Signal.TRACES, body, content_type, redactor=EMAILS)
        letter = dead_letter_of_body(Signal.TRACES, body, content_type, caught.value, redactor=EMAILS)
        assert (letter.raw, "mail" in letter.detail) == (b"", False)
        assert dead_letter_of_body(Signal.TRACES, b"\xff", content_type, caught.value).raw == b"\xff"


async def test_every_route_redacts(data_dir: DataDir, address: Address, launch: Launcher, clickhouse_url: str) -> None:
    """A real collector: HTTP, gRPC, JSON, scores, dead letters, and the health report."""
    rules_file(data_dir.path, 'builtin = ["emails"]')
    collector = launch(clickhouse_url)
    body = request_with("span", text("k", f"mail {EMAIL}")).SerializeToString()
    refused = request_with("span", text("k", f"mail {EMAIL}"))
    refused.resource_spans[0].scope_spans[0].spans[0].trace_id = b"short"
    log = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": EMAIL}}]}]}]}
    score = {"value": 1, "session_id": "s", "comment": f"says {EMAIL}"}
    sent = (
        ("/v1/traces", body, PROTOBUF, 200),
        ("/v1/traces", refused.SerializeToString(), PROTOBUF, 200),
        ("/v1/logs", json.dumps(log).encode(), JSON, 200),
        ("/v1/scores", json.dumps(score).encode(), JSON, 200),
        ("/v1/traces", f"\xff{EMAIL}".encode(), PROTOBUF, 400),
    )
    async with httpx.AsyncClient(base_url=collector.url) as client:
        for path, content, content_type, status in sent:
            answer = await client.post(path, content=content, headers={"content-type": content_type})
            assert answer.status_code == status
            assert EMAIL not in answer.text
        async with grpc.aio.insecure_channel(urlsplit(str(collector.health()["grpc"])).netloc) as channel:
            await channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")(body)
        deadline_s = time.monotonic() + 60
        # Two spans, one beside the refused one, two by gRPC, the log record and the score.
        while collector.health()["inserted"] != 7:
            assert time.monotonic() < deadline_s, collector.health()
            await asyncio.sleep(0.1)
        metrics = (await client.get("/metrics")).text
    assert 'spanloop_collector_redacted_total{rule="emails"} 5' in metrics
    health = collector.health()
    assert health["redacted"] == {"emails": 5}
    assert health["rejected"] == {"bad_trace_id": 1}
    latency = health["insert_latency"]
    assert isinstance(latency, dict)
    assert f"spanloop_collector_insert_seconds_count {latency['count']}" in metrics
    assert f'spanloop_collector_insert_seconds_bucket{{le="+Inf"}} {latency["count"]}' in metrics
    assert collector.terminate() == 0
    assert EMAIL not in collector.log.read_text()
    for table in ("otel_traces", "otel_logs", "scores", "dead_letters"):
        stored_text = everything_in(address, table)
        assert stored_text
        assert "mail.example.com" not in stored_text
    letters = [json.loads(line) for line in everything_in(address, "dead_letters").splitlines()]
    raws = {letter["reason"]: base64.b64decode(letter["raw_base64"]) for letter in letters}
    assert set(raws) == {"bad_trace_id", "malformed_body"}
    assert b"__REDACTED__" in raws["bad_trace_id"]
    assert raws["malformed_body"] == b""


def everything_in(address: Address, table: str) -> str:
    """All rows of a table as JSON lines."""
    connection = Connection(address)
    try:
        statement = f"SELECT * FROM {table}"
        return connection.read(statement, "JSONEachRow", doing="looking").decode()
    finally:
        connection.close()


def test_no_derived_table_holds_redacted_text(
    data_dir: DataDir, store: Store, address: Address, launch: Launcher, clickhouse_url: str
) -> None:
    """Messages are stored once, and each as the collector left it."""
    rules_file(data_dir.path, 'builtin = ["emails"]')
    collector = launch(clickhouse_url)
    request = trace_request(1)
    (span,) = request.resource_spans[0].scope_spans[0].spans
    names = ("gen_ai.operation.name", "gen_ai.request.model", "gen_ai.response.finish_reasons")
    span.attributes.extend(text(name, value) for name, value in zip(names, ("chat", "m", '["stop"]'), strict=True))
    for name, role in (("gen_ai.input.messages", "user"), ("gen_ai.output.messages", "assistant")):
        said = {"role": role, "parts": [{"type": "text", "content": f"{role} wrote to {EMAIL}"}]}
        span.attributes.append(text(name, json.dumps([said])))
    assert collector.post(request.SerializeToString()).status_code == 200
    deadline_s = time.monotonic() + 60
    while collector.health()["inserted"] != 1:
        assert time.monotonic() < deadline_s, collector.health()
        time.sleep(0.1)
    assert run(store).transitions == 1
    tables = ("episode_messages", "transition_rows", "transitions", "episodes", "failures")
    stored = {table: everything_in(address, table) for table in tables}
    assert not [table for table, rows in stored.items() if "mail.example.com" in rows]
    assert "user wrote to" in stored["episode_messages"]
    assert stored["transitions"].count("wrote to") == 2
    assert "redacted_content" in stored["transition_rows"]
