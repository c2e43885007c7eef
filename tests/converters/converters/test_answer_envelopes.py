"""Errors of tools inside envelopes, representations, fences, XML and arrays count as the same plain words do."""

import json

import pytest

from spanloop.converters.errors.error_texts import error_in_text, inner_text

from .converters_world import OPENING, World, answers, asks, text, trace_id

WORDS = "Error: the ledger is locked"
OBJECT = {"error": {"code": "LEDGER_LOCKED", "message": "the ledger is locked"}}
JSON = json.dumps(OBJECT)


def content(text: str) -> list[dict[str, object]]:
    return [{"type": "text", "text": text, "annotations": None}]


ERRORS = {
    "MCP content": json.dumps({"content": content(WORDS), "isError": False}),
    "MCP content behind an image": json.dumps({"content": [{"type": "image", "data": "aaaa"}, *content(WORDS)]}),
    "MCP with four fields": json.dumps(
        {"meta": None, "content": content(WORDS), "structured_content": None, "is_error": False}
    ),
    "MCP content with JSON in its text": json.dumps({"content": content(JSON), "isError": False}),
    "MCP structured content": json.dumps({"content": content("see there"), "structuredContent": OBJECT}),
    "FastMCP structured text": json.dumps({"structured_content": {"result": WORDS}, "is_error": False}),
    "JSON-RPC around MCP": json.dumps({"jsonrpc": "2.0", "id": 4, "result": {"content": content(JSON)}}),
    "a list of content": json.dumps(content(JSON)),
    "a list of content, text first": json.dumps([{"text": WORDS, "type": "text"}]),
    "Bedrock content": json.dumps({"toolUseId": "t", "status": "success", "content": [{"text": WORDS}]}),
    "ADK": json.dumps({"ledger_response": {"result": OBJECT}}),
    "Gemini": json.dumps({"functionResponse": {"name": "ledger", "response": OBJECT}}),
    "LangChain": json.dumps({"type": "tool", "tool_call_id": "c", "status": "success", "content": WORDS}),
    "Vercel": json.dumps({"type": "error-json", "value": "x", "message": "locked"}),
    "a result": json.dumps({"result": OBJECT}),
    "a result in a result": json.dumps({"result": {"output": {"data": OBJECT}}}),
    "a result without success": json.dumps({"tool": "ledger", "ms": 3, "data": {"success": False, "reason": "locked"}}),
    "an HTTP answer": json.dumps({"status_code": 200, "headers": {}, "body": JSON}),
    "an array": json.dumps([OBJECT]),
    "an array of failures": json.dumps([OBJECT, {"success": False}]),
    "an array of words": json.dumps([WORDS]),
    "a batch in which all failed": json.dumps({"results": [OBJECT, OBJECT]}),
    "JSON encoded twice": json.dumps(JSON),
    "words as JSON": json.dumps(WORDS),
    "a dict's representation": repr(OBJECT),
    "a list's representation": repr([OBJECT]),
    "a text's representation": repr(WORDS),
    "the representation of bytes": repr(JSON.encode()),
    "a pydantic model": f"meta=None content=[TextContent(type='text', text={WORDS!r}, annotations=None)] isError=False",
    "a pydantic model's flag": "content=[TextContent(type='text', text='locked')] isError=True",
    "an object's representation": f"ToolOutput(content={WORDS!r}, tool_name='ledger', is_error=False)",
    "a list of objects": f"[TextContent(type='text', text={JSON!r}, annotations=None)]",
    "an exception's representation": "LedgerError('locked', 3)",
    "a fence": f"```json\n{JSON}\n```",
    "a fence without a language": f"```\n{WORDS}\n```",
    "a fence that is cut": f"~~~json\n{JSON}",
    "a cut object": JSON[:30],
    "SOAP": (
        '<?xml version="1.0"?><soap:Envelope xmlns:soap="http://schemas.xmlsoap.org/soap/envelope/"><soap:Body>'
        "<soap:Fault><faultcode>soap:Server</faultcode><faultstring>locked</faultstring></soap:Fault>"
        "</soap:Body></soap:Envelope>"
    ),
    "SOAP that is cut": (
        '<S:Envelope xmlns:S="http://www.w3.org/2003/05/soap-envelope"><S:Header/><S:Body><S:Fault><S:Code>'
    ),
    "an XML error": "<Error><Code>Locked</Code><Message>the ledger is locked</Message></Error>",
    "an XML answer with an error": '<?xml version="1.0"?>\n<Reply><errors><error>locked</error></errors></Reply>',
    "an XML status": '<response status="error"><message>locked</message></response>',
    "an XML flag": "<reply><success>false</success><reason>locked</reason></reply>",
    "a page": "<html><head><title>503 Service Temporarily Unavailable</title></head><body></body></html>",
}

ANSWERS = {
    "MCP content": json.dumps({"content": content("the ledger is open"), "isError": False}),
    "MCP content with JSON in its text": json.dumps({"content": content('{"errors": [], "balance": 3}')}),
    "structured content": json.dumps({"content": content("ok"), "structuredContent": {"result": "open"}}),
    "a record that failed": json.dumps({"data": {"id": 4, "status": "failed"}}),
    "records": json.dumps([{"id": 4, "status": "failed"}, {"id": 5, "status": "done"}]),
    "records in a result": json.dumps({"status": "success", "data": [{"id": 4, "error": "disk full"}]}),
    "a batch in which one failed": json.dumps({"results": [OBJECT, {"balance": 3}]}),
    "a search": json.dumps([{"title": "Error handling"}, {"title": "Timeouts"}]),
    "an article": json.dumps({"title": "Why programs fail", "url": "x", "lang": "en", "text": "Errors: a history"}),
    "an empty error": json.dumps({"result": {"error": None, "balance": 3}}),
    "a representation": repr({"balance": 3, "error": None}),
    "an object's representation": "Ledger(balance=3, error=None)",
    "code": "def fail():\n    raise LedgerError('locked')",
    "a fence": "```python\nraise LedgerError('locked')\n```",
    "XML": "<reply><success>true</success><errors/></reply>",
    "a page": f"<html><head><title>Errors and faults</title></head><body>{'x' * 400}</body></html>",
    "brackets": "[see the ledger] open",
    "nothing": "",
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_in_an_envelope_is_one(name: str) -> None:
    assert error_in_text(ERRORS[name]) is not None, ERRORS[name]


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_in_an_envelope_is_none(name: str) -> None:
    assert error_in_text(ANSWERS[name]) is None, ANSWERS[name]


@pytest.mark.parametrize("text", ["[" * 50_000, "```\n" * 20_000, "'" * 9, "<a>" * 9_000, "a=" * 9_000, "b'\\xff'"])
def test_no_text_is_too_odd(text: str) -> None:
    error_in_text(text)
    assert isinstance(inner_text(text), str)


@pytest.mark.parametrize("name", ERRORS)
def test_status_and_failure_agree(name: str) -> None:
    world, trace = World(), trace_id(name)
    said, answer = asks("c", arguments={"query": "sum"}), answers("c", ERRORS[name])
    world.call(OPENING, said, trace=trace)
    world.call([*OPENING, said, answer], text("assistant", "It is locked."), trace=trace)
    converted = world.convert()
    step = converted.transitions.sort("step").row(0, named=True)
    (result,) = json.loads(step["tool_results"])
    assert (result["status"], result["content"]) == ("error", ERRORS[name])
    assert step["tool_error_count"] == converted.failures.height == 1


REFUSED = "missing required parameter: owner"


@pytest.mark.parametrize(
    "answer",
    [
        REFUSED,
        json.dumps({"meta": None, "content": content(REFUSED), "is_error": False}),
        json.dumps({"result": {"content": content(REFUSED)}}),
        f"content=[TextContent(type='text', text={REFUSED!r}, annotations=None)] isError=True",
        f"```\n{REFUSED}\n```",
    ],
    ids=["plain", "MCP", "a result", "a representation", "a fence"],
)
def test_the_words_inside_tell_whose_failure_it_is(answer: str) -> None:
    world, trace = World(), trace_id("refused")
    said = asks("c", arguments={"query": "sum"})
    world.call(OPENING, said, trace=trace, tools=[])
    world.call([*OPENING, said, answers("c", answer)], text("assistant", "No."), trace=trace, tools=[])
    failure = world.convert().failures.row(0, named=True)
    assert (failure["error_class"], failure["fault_owner"]) == ("invalid_arguments", "policy")


def test_a_tools_span_tells_of_the_error_that_the_model_was_not_shown() -> None:
    world, trace = World(), trace_id("hidden")
    said = asks("c")
    world.call(OPENING, said, trace=trace)
    world.tool("c", json.dumps({"content": content("locked"), "isError": True}), trace=trace)
    world.call([*OPENING, said, answers("c", "locked")], text("assistant", "No."), trace=trace)
    step = world.convert().transitions.sort("step").row(0, named=True)
    assert json.loads(step["tool_results"])[0]["status"] == "error"
