import json
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest

from spanloop.converters import Converted
from spanloop.converters.attribution.tool_calls.bad_call import schema_violation
from spanloop.converters.errors.error_texts import error_in_text
from spanloop.converters.reading.finish_reasons import canonical_finish_reason

from .converters_world import OPENING, TOOLS, World, answers, asks, text, trace_id

TRACE = trace_id("t")


def failure(converted: Converted) -> dict[str, object]:
    assert converted.failures.height == 1, converted.failures
    return converted.failures.row(0, named=True)


def tool_says(content: str, arguments: object = None, name: str = "search") -> Converted:
    """One tool call that is answered with ``content``, and a final answer."""
    world = World()
    said = asks("c1", name, arguments)
    world.call(OPENING, said, trace=TRACE)
    world.call([*OPENING, said, answers("c1", content)], text("assistant", "done"), trace=TRACE)
    return world.convert()


@pytest.mark.parametrize(
    ("status", "error_type", "error_class", "owner"),
    [
        ("Error code: 429 - Rate limit reached", "RateLimitError", "rate_limit", "environment"),
        ("Request timed out.", "APITimeoutError", "timeout", "environment"),
        ("Error code: 500 - boom", "InternalServerError", "server_error", "environment"),
        ("Connection error.", "APIConnectionError", "connection_error", "environment"),
        ("Error code: 401 - bad key", "AuthenticationError", "authentication", "harness"),
        ("Error code: 404 - no such model", "NotFoundError", "invalid_request", "harness"),
        ("Error code: 400 - maximum context length is 4096 tokens", "BadRequestError", "context_overflow", "harness"),
        ("prompt is too long: 208310 tokens > 200000", "BadRequestError", "context_overflow", "harness"),
        ("Please reduce the length of the messages.", "BadRequestError", "context_overflow", "harness"),
        ("filtered by the content management policy", "BadRequestError", "content_filter", "unknown"),
        ("Unable to locate credentials", "NoCredentialsError", "authentication", "harness"),
        ("[Errno -2] Name or service not known", "gaierror", "connection_error", "environment"),
        ("certificate verify failed", "SSLError", "connection_error", "environment"),
        ("strange", "SomethingElse", "model_call_error", "unknown"),
        ("exceed context limit: 195000 + 8192 > 200000", "BadRequestError", "context_overflow", "harness"),
        ("400 The input token count exceeds the maximum number of tokens", "X", "context_overflow", "harness"),
        ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 512", "X", "context_overflow", "harness"),
        ("Too many tokens, please wait before trying again.", "ThrottlingException", "rate_limit", "environment"),
        ("Your credit balance is too low to access the API", "BadRequestError", "rate_limit", "environment"),
        ("Model is not ready for inference.", "ModelNotReadyException", "server_error", "environment"),
        ("You don't have access to the model", "AccessDeniedException", "authentication", "harness"),
        ("400 INVALID_ARGUMENT. API key not valid.", "ClientError", "authentication", "harness"),
        ("socket hang up", "Error", "connection_error", "environment"),
        ("Response ended prematurely", "ChunkedEncodingError", "connection_error", "environment"),
        ("Expected toolResult blocks at messages.2", "ValidationException", "invalid_request", "harness"),
        ("finish_reason: SAFETY", "StopCandidateException", "content_filter", "unknown"),
        ("context canceled", "context.Canceled", "cancelled", "user"),
    ],
)
def test_failed_requests(status: str, error_type: str, error_class: str, owner: str) -> None:
    world = World()
    span = world.call(
        OPENING, None, trace=TRACE, error=status, exception=(error_type, status), attributes={"error.type": error_type}
    )
    converted = world.convert()
    row = failure(converted)
    assert (row["error_class"], row["fault_owner"], row["span_id"]) == (error_class, owner, span)
    assert (row["message"], row["is_recovered"]) == (status, False)
    assert converted.transitions["untrainable_reason"].to_list() == ["request_failed"]
    assert converted.episodes["outcome"].to_list() == ["failure"]


@pytest.mark.parametrize(
    ("content", "error_class", "owner"),
    [
        ("Error: ValueError: too much", "tool_error", "tool"),
        ("Traceback (most recent call last):\n  boom\nKeyError: 'x'", "tool_error", "tool"),
        ('{"error": "no such order"}', "tool_error", "unknown"),
        ('{"status": "error", "detail": "x"}', "tool_error", "unknown"),
        ("requests.exceptions.ConnectionError: refused", "connection_error", "environment"),
        ("TimeoutError: took too long", "timeout", "environment"),
        ("Error: HTTP 429 Too Many Requests", "rate_limit", "environment"),
        ("Error: status code 502", "server_error", "environment"),
        ("TypeError: search() got an unexpected keyword argument 'q'", "invalid_arguments", "policy"),
        ("Error: 1 validation error for search", "invalid_arguments", "policy"),
    ],
)
def test_tool_errors_by_their_text(content: str, error_class: str, owner: str) -> None:
    converted = tool_says(content)
    row = failure(converted)
    assert (row["error_class"], row["fault_owner"], row["tool_name"]) == (error_class, owner, "search")
    assert row["is_recovered"]
    (result,) = json.loads(converted.transitions.sort("step").item(0, "tool_results"))
    assert (result["status"], result["content"]) == ("error", content)
    assert converted.transitions.sort("step")["tool_error_count"].to_list() == [1, 0]


@pytest.mark.parametrize(
    "content",
    [
        "27",
        "",
        '{"error": null, "value": 3}',
        '{"errors": []}',
        "No errors found.",
        "The error rate is 3 %",
        "Failure is not an option",
        "errors: none of them",
    ],
)
def test_answers_that_are_no_errors(content: str) -> None:
    assert tool_says(content).failures.is_empty()


FRUIT = [OPENING[0], text("user", "What do 3 apples cost?")]
PRICE = {"name": "price", "parameters": {"properties": {"query": {"type": "string"}}, "required": ["query"]}}


def refused(content: str, arguments: object, seen: Sequence[dict[str, Any]] = FRUIT, **tool: Any) -> dict[str, object]:
    """The failure of one call of ``price`` that is answered with ``content``."""
    world = World()
    said = asks("c1", "price", arguments)
    world.call(seen, said, trace=TRACE, tools=[PRICE | tool])
    world.call([*seen, said, answers("c1", content)], text("assistant", "x"), trace=TRACE, tools=[PRICE | tool])
    return failure(world.convert())


@pytest.mark.parametrize(
    ("content", "arguments", "confidence"),
    [
        ("Error: KeyError: no item 'kumquat'", {"query": "kumquat"}, 0.75),
        ("KeyError: 'kumquat'", {"query": "kumquat"}, 0.75),
        ("ValueError: 'Kumquat' is not a valid item", {"query": "kumquat"}, 0.75),
        ('{"error": "order ZX-81 not found"}', {"query": "x", "deep": [{"id": "ZX-81"}]}, 0.75),
        ("Error: no such order: 4711", {"query": "apples", "order": 4711}, 0.5),
    ],
)
def test_a_value_that_the_policy_made_up_is_the_policys_fault(
    content: str, arguments: dict[str, Any], confidence: float
) -> None:
    row = refused(content, arguments)
    assert (row["error_class"], row["fault_owner"], row["rule"]) == (
        "invalid_arguments",
        "policy",
        "hallucinated_arguments",
    )
    assert 0.8 * confidence < float(str(row["confidence"])) <= confidence
    assert json.loads(str(row["evidence"]))["not_given"]


@pytest.mark.parametrize(
    ("content", "arguments"),
    [
        ("KeyError: 'weight'", {"query": "kumquat"}),
        ("Error executing price(query='kumquat'): KeyError: 'weight'", {"query": "kumquat"}),
        ("RuntimeError: out of paper while printing kumquat", {"query": "kumquat"}),
        ("ValueError: 500 exceeds the amount paid", {"query": "apples", "amount": 500}),
        ("KeyError: ''", {"query": ""}),
    ],
)
def test_what_the_error_does_not_name_stays_the_tools(content: str, arguments: dict[str, Any]) -> None:
    row = refused(content, arguments)
    assert (row["error_class"], row["fault_owner"]) == ("tool_error", "tool")


@pytest.mark.parametrize("value", ["apple", "APPLES"])
def test_a_value_that_the_policy_was_given_is_nobodys_mistake(value: str) -> None:
    row = refused(f"KeyError: '{value}'", {"query": value})
    assert (row["error_class"], row["fault_owner"], row["rule"]) == ("tool_error", "unknown", "given_value")


def test_tool_responses_and_definitions_are_given_and_the_policys_own_words_are_not() -> None:
    error = "KeyError: 'kumquat'"
    assert refused(error, {"query": "kumquat"}, description="For example kumquat.")["fault_owner"] == "unknown"
    told = [*FRUIT, asks("c0", "price"), answers("c0", '["kumquat", "plum"]')]
    assert refused(error, {"query": "kumquat"}, told)["fault_owner"] == "unknown"
    guessed = [*FRUIT, text("assistant", "They surely sell kumquat."), text("user", "Go on.")]
    assert refused(error, {"query": "kumquat"}, guessed)["fault_owner"] == "policy"


def test_where_not_all_that_was_given_can_be_read_nothing_is_called_made_up() -> None:
    picture = {"role": "user", "parts": [{"type": "uri", "modality": "image", "uri": "https://x/y.png"}]}
    assert refused("KeyError: 'kumquat'", {"query": "kumquat"}, [*FRUIT, picture])["fault_owner"] == "tool"


def test_an_outage_is_the_environments_even_where_it_names_a_made_up_value() -> None:
    row = refused("ConnectionError: host kumquat not found", {"query": "kumquat"})
    assert (row["error_class"], row["fault_owner"]) == ("connection_error", "environment")


def test_a_tool_span_that_failed_is_an_error_whatever_the_message_says() -> None:
    world = World()
    world.call(OPENING, asks("c1"), trace=TRACE)
    tool = world.tool("c1", "", trace=TRACE, error="boom", exception=("ValueError", "boom"), duration_s=2.0)
    world.call([*OPENING, asks("c1"), answers("c1", "Please try again.")], text("assistant", "x"), trace=TRACE)
    converted = world.convert()
    row = failure(converted)
    assert (row["error_class"], row["fault_owner"], row["span_id"]) == ("tool_error", "tool", tool)
    (result,) = json.loads(converted.transitions.sort("step").item(0, "tool_results"))
    assert result == {
        "tool_call_id": "c1",
        "name": "search",
        "status": "error",
        "error_type": "ValueError",
        "content": "Please try again.",
        "duration_ns": 2_000_000_000,
        "span_id": tool,
    }


def test_what_only_the_tools_span_says_tells_whose_fault_it_is() -> None:
    world = World()
    said = asks("c1", arguments={"query": "QX4711"})
    world.call(OPENING, said, trace=TRACE)
    world.tool("c1", "", trace=TRACE, error="x", exception=("LookupError", "could not find QX4711"))
    shown = answers("c1", "The tool could not be used.")
    world.call([*OPENING, said, shown], text("assistant", "x"), trace=TRACE)
    row = failure(world.convert())
    assert (row["error_class"], row["fault_owner"], row["rule"]) == (
        "invalid_arguments",
        "policy",
        "hallucinated_arguments",
    )


def test_a_tool_span_without_an_id_is_found_by_its_name() -> None:
    world = World()
    world.call(OPENING, asks("c1"), trace=TRACE)
    values = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.tool.call.result": "42"}
    world.span("execute_tool search", values, trace=TRACE)
    (result,) = json.loads(world.convert().transitions.item(0, "tool_results"))
    assert (result["status"], result["content"]) == ("ok", "42")


def test_unknown_tools_and_malformed_arguments_are_the_policys() -> None:
    row = failure(tool_says("Error: unknown tool reorder", name="reorder"))
    assert (row["error_class"], row["fault_owner"]) == ("unknown_tool", "policy")
    assert json.loads(str(row["evidence"]))["offered"] == "search"
    row = failure(tool_says("Error: not valid JSON", arguments='{"query": '))
    assert (row["error_class"], row["fault_owner"]) == ("invalid_arguments", "policy")
    row = failure(tool_says("42", arguments="{'query': 'python repr'}"))
    assert row["error_class"] == "invalid_arguments"


def test_arguments_that_break_the_schema_are_the_policys_and_decide_only_when_the_tool_failed() -> None:
    assert failure(tool_says("42", arguments={"limit": "three", "query": "x"}))["is_recovered"]
    row = failure(tool_says("Error: ValueError: bad", arguments={"limit": "three", "query": "x"}))
    assert (row["error_class"], row["fault_owner"]) == ("invalid_arguments", "policy")
    assert row["message"] == "argument 'limit' is str, expected integer"


@pytest.mark.parametrize(
    ("arguments", "violation"),
    [
        ({"query": "x"}, ""),
        ({"query": "x", "extra": 1}, ""),
        ({}, "required argument 'query' is missing"),
        ({"query": 1}, "argument 'query' is int, expected string"),
        ({"query": "x", "limit": True}, "argument 'limit' is bool, expected integer"),
    ],
)
def test_schema_violations(arguments: dict[str, object], violation: str) -> None:
    assert schema_violation(json.dumps(arguments), TOOLS[0]["parameters"]) == violation  # type: ignore[arg-type]


def test_schema_violations_of_enumerations_and_closed_objects() -> None:
    schema = {"properties": {"unit": {"enum": ["C", "F"]}}, "additionalProperties": False}
    assert "expected one of" in schema_violation('{"unit": "K"}', schema)
    assert schema_violation('{"other": 1}', schema) == "argument 'other' is not in the schema"


def test_truncated_and_filtered_outputs() -> None:
    for finish, error_class in (("length", "truncated_output"), ("content_filter", "content_filter")):
        world = World()
        world.call(OPENING, text("assistant", "Sun"), trace=TRACE, finish=finish)
        converted = world.convert()
        assert failure(converted)["error_class"] == error_class
        assert converted.transitions["finish_reason"].to_list() == [finish]
    world = World()
    world.call(OPENING, text("assistant", "Sun"), trace=TRACE, finish="max_tokens")
    assert world.convert().episodes.select("is_terminated", "is_truncated").row(0) == (False, True)


def test_a_stream_without_a_finish_reason_is_incomplete() -> None:
    world = World()
    values = {"gen_ai.is_streaming": "true", "gen_ai.response.finish_reasons": "[]"}
    world.call(OPENING, text("assistant", "It is"), trace=TRACE, attributes=values)
    world.spans[0]["SpanAttributes"] = [
        {"key": i["key"], "value": i["value"].replace('"stop"', '""')} for i in world.spans[0]["SpanAttributes"]
    ]
    converted = world.convert()
    row = failure(converted)
    assert (row["error_class"], row["fault_owner"]) == ("incomplete_stream", "unknown")
    assert converted.transitions["untrainable_reason"].to_list() == ["incomplete_stream"]


@pytest.mark.parametrize(("reward", "outcome"), [(1.0, "success"), (None, "unknown")])
def test_a_stream_whose_answer_nobody_recorded_has_not_failed(reward: float | None, outcome: str) -> None:
    world = World()
    world.call(OPENING, asks("c1"), trace=TRACE)
    history = [*OPENING, asks("c1"), answers("c1", "ok")]
    world.call(history, None, trace=TRACE, attributes={"gen_ai.is_streaming": "true"})
    if reward is not None:
        world.score(reward, trace_id=TRACE)
    converted = world.convert()
    assert converted.failures.is_empty()
    assert converted.episodes["outcome"].to_list() == [outcome]
    assert converted.transitions.sort("step")["untrainable_reason"].to_list() == ["", "missing_content"]


def test_a_failure_that_nothing_attributes_trains_nobody() -> None:
    world = World()
    world.call(OPENING, asks("c1"), trace=TRACE)
    history = [*OPENING, asks("c1"), answers("c1", "ok")]
    world.call(history, None, trace=TRACE, exception=("AppError", "operation did not complete"))
    world.score(0.0, trace_id=TRACE)
    converted = world.convert()
    row = failure(converted)
    assert (row["error_class"], row["fault_owner"]) == ("model_call_error", "unknown")
    reasons = converted.transitions.sort("step")["untrainable_reason"].to_list()
    assert reasons == ["unattributed_failure", "request_failed"]


def test_a_tool_call_that_the_service_could_not_read_is_malformed_output() -> None:
    world = World()
    world.call(OPENING, text("assistant", ""), trace=TRACE, finish="FinishReason.MALFORMED_FUNCTION_CALL")
    converted = world.convert()
    row = failure(converted)
    assert (row["error_class"], row["fault_owner"]) == ("malformed_output", "policy")
    assert converted.transitions["untrainable_reason"].to_list() == ["incomplete_stream"]


@pytest.mark.parametrize(
    ("said", "is_call"),
    [
        ('I look it up.\n```json\n{"name": "search", "arguments": {"query": 1}}\n```', True),
        ("Action: search\nAction Input: x", True),
        ("<|channel|>commentary to=functions.search <|message|>{}", True),
        ("functions.search({})", True),
        ("Action: drill\nAction Input: x", False),
        ("We call functions.f(x) continuous where it has no jumps.", False),
    ],
)
def test_tool_calls_as_text_that_name_an_offered_tool(said: str, *, is_call: bool) -> None:
    world = World()
    world.call(OPENING, text("assistant", said), trace=TRACE)
    classes = world.convert().failures["error_class"].to_list()
    assert classes == (["malformed_output"] if is_call else [])


def test_parallel_tool_calls_stay_one_action_with_a_result_each() -> None:
    world = World()
    both = asks("c1")
    both["parts"].append({"type": "tool_call", "id": "c2", "name": "search", "arguments": {"query": "y"}})
    world.call(OPENING, both, trace=TRACE)
    world.call([*OPENING, both, answers("c1", "ok"), answers("c2", "Error: boom")], text("assistant", "x"), trace=TRACE)
    converted = world.convert()
    results = json.loads(converted.transitions.sort("step").item(0, "tool_results"))
    assert [(r["tool_call_id"], r["status"]) for r in results] == [("c1", "ok"), ("c2", "error")]
    assert converted.episodes.select("tool_call_count", "tool_error_count").row(0) == (2, 1)


def test_parallel_tool_calls_without_ids_keep_their_own_results() -> None:
    world = World()
    both = asks("")
    both["parts"].append({"type": "tool_call", "name": "search", "arguments": {"query": "y"}})
    world.call(OPENING, both, trace=TRACE)
    first = world.tool("", "ok", trace=TRACE)
    second = world.tool("", "", trace=TRACE, error="boom", exception=("ValueError", "boom"))
    world.call([*OPENING, both, answers("", "ok"), answers("", "boom")], text("assistant", "x"), trace=TRACE)
    converted = world.convert()
    results = json.loads(converted.transitions.sort("step").item(0, "tool_results"))
    assert [(r["span_id"], r["status"], r["content"]) for r in results] == [
        (first, "ok", "ok"),
        (second, "error", "boom"),
    ]
    assert failure(converted)["span_id"] == second


def test_the_same_failure_has_the_same_fingerprint_in_any_episode() -> None:
    found = {
        str(
            failure(tool_says(f"Error: ValueError: refund of {amount} exceeds {limit} on order '{order}'"))[
                "fingerprint"
            ]
        )
        for amount, limit, order in ((500.0, 20, "A17"), (1, 3.5, "B02"))
    }
    assert len(found) == 1
    other = str(failure(tool_says("Error: KeyError: no such order"))["fingerprint"])
    assert other not in found


def test_a_failure_that_ends_the_episode_is_not_recovered() -> None:
    world = World()
    world.call(OPENING, asks("c1"), trace=TRACE)
    world.tool("c1", "", trace=TRACE, error="boom", exception=("ValueError", "boom"))
    converted = world.convert()
    assert not failure(converted)["is_recovered"]
    assert converted.episodes.select("error_class", "fault_owner", "outcome").row(0) == (
        "tool_error",
        "tool",
        "failure",
    )


def test_a_recovered_failure_does_not_decide_the_episode() -> None:
    converted = tool_says("Error: ValueError: x")
    assert converted.episodes.select("error_class", "outcome", "is_terminated").row(0) == ("", "unknown", True)
    assert converted.transitions.sort("step")["error_class"].to_list() == ["tool_error", ""]
    assert converted.transitions["is_trainable"].all()


@pytest.mark.parametrize(
    ("spelled", "canonical"),
    [
        ('["tool_call"]', "tool_call"),
        ('["tool_calls"]', "tool_call"),
        ("tool_use", "tool_call"),
        ("FinishReason.STOP", "stop"),
        ('["end_turn"]', "stop"),
        ("MAX_TOKENS", "length"),
        ('[""]', ""),
        ("[]", ""),
        ("null", ""),
        ("('stop',)", "('stop',)"),
        ("['stop']", "stop"),
        ("something_new", "something_new"),
        ("MALFORMED_FUNCTION_CALL", "malformed_tool_call"),
        ("contentFilter", "content_filter"),
        ("token_limit", "length"),
    ],
)
def test_finish_reasons_of_all_spellings(spelled: str, canonical: str) -> None:
    assert canonical_finish_reason(spelled) == canonical


def test_text_rules_name_the_exception() -> None:
    verdict = error_in_text("Error: openai.RateLimitError: slow down")
    assert verdict is not None
    assert (verdict.rule, verdict.error_type) == ("error_label", "RateLimitError")


def test_failures_are_located_in_time_and_step() -> None:
    converted = tool_says("Error: x: boom")
    row = failure(converted)
    first = converted.transitions.filter(pl.col("step") == 0).row(0, named=True)
    assert (row["step"], row["trace_id"], row["span_id"]) == (0, first["trace_id"], first["span_id"])
    assert row["rule"] == "tool_raised"
    assert 0 < float(str(row["confidence"])) < 1
