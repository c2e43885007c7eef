"""Failures in eight languages, told in text, in a JSON object and raised; and answers that are none."""

import json
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from spanloop.converters import Converted
from spanloop.converters.error_texts import error_in_text

from .converters_world import OPENING, World, answers, asks, text
from .failure_worlds import TRACE, told, verdicts

KINDS: Final[dict[str, dict[str, Any]]] = tomllib.loads(
    (Path(__file__).parent / "failure_kinds.toml").read_text("utf-8")
)
TOOL_CASES: Final = [(kind, said) for kind in KINDS["tool"].values() for said in kind["texts"]]
REQUEST_CASES: Final = [(kind, said) for kind in KINDS["request"].values() for said in kind["texts"]]


def called(kind: dict[str, Any], content: str, *, is_raised: bool = False) -> Converted:
    world = World()
    arguments = json.loads(kind.get("arguments", '{"query": "weather in Paris"}'))
    name = kind.get("name", "search")
    said = asks("c1", name, arguments)
    world.call(OPENING, said, trace=TRACE)
    if is_raised:
        values = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, "gen_ai.tool.call.id": "c1"}
        world.span("tool", values, trace=TRACE, error=content, exception=(kind["exception"], content))
    world.call([*OPENING, said, answers("c1", content)], text("assistant", "21"), trace=TRACE)
    world.score(0.0, trace_id=TRACE)
    return world.convert()


@pytest.mark.parametrize("number", range(len(TOOL_CASES)))
def test_a_tools_failure_told_in_text(number: int) -> None:
    kind, said = TOOL_CASES[number]
    ((error_class, owner),) = verdicts(called(kind, said))
    assert (error_class, owner in kind.get("told_owner", [kind["owner"]])) == (kind["class"], True), said


@pytest.mark.parametrize("number", [number for number, (kind, _) in enumerate(TOOL_CASES) if kind["exception"]])
def test_a_tools_failure_raised(number: int) -> None:
    kind, said = TOOL_CASES[number]
    assert verdicts(called(kind, said, is_raised=True)) == [(kind["class"], kind["owner"])], said


@pytest.mark.parametrize("number", range(len(TOOL_CASES)))
def test_the_policy_is_charged_only_with_its_own(number: int) -> None:
    kind, said = TOOL_CASES[number]
    plain, escaped = json.dumps({"message": said}, ensure_ascii=False), json.dumps({"message": said})
    for content in (plain, escaped, json.dumps({"error": said}, ensure_ascii=False)):
        owners = {owner for _, owner in verdicts(called(kind, content))}
        assert "policy" not in owners or kind["owner"] == "policy", content


@pytest.mark.parametrize("number", range(len(REQUEST_CASES)))
def test_a_request_raised(number: int) -> None:
    kind, said = REQUEST_CASES[number]
    world = World()
    world.call(OPENING, None, trace=TRACE, error=said, exception=(kind["exception"], said))
    assert verdicts(world.convert()) == [(kind["class"], kind["owner"])], said


@pytest.mark.parametrize(
    "answer",
    [
        "0 errors found",
        "The error handling guide explains how to retry.",
        "Chapter 3 is about timeouts and rate limits.",
        "Das Hotel ist bis Mai ausgebucht",
        "La clave es viajar en mayo",
        "Pilot error",
        "The query returned 500 rows",
    ],
)
def test_an_answer_about_errors_is_none(answer: str) -> None:
    assert error_in_text(answer) is None


@pytest.mark.parametrize("last", ["A timeout of 30 seconds is best.", "The request timed out in the film's plot."])
def test_a_wrong_answer_that_mentions_an_outage_stays_wrong(last: str) -> None:
    assert verdicts(told('{"title": "Networks"}', last=last)) == [("wrong_answer", "policy")]


def test_an_apology_after_a_remark_that_no_pattern_knows_charges_nobody() -> None:
    converted = told("Der Buchungsroboter streikt heute", last="Es tut mir leid, das ging nicht.")
    assert verdicts(converted) == [("tool_error", "unknown")]


def test_a_tools_own_data_that_do_not_fit_are_not_the_policys() -> None:
    content = "Output validation error: 'price' is a required property"
    assert verdicts(told(content)) == [("tool_error", "unknown")]
