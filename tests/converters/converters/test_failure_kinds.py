"""Failures in eight languages, told in text, in a JSON object and raised; and answers that are none."""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

from spanloop.converters import Converted
from spanloop.converters.errors.error_texts import error_in_text

from .converters_world import OPENING, World, answers, asks, text, trace_id
from .failure_worlds import told, verdicts

KINDS: Final[dict[str, dict[str, Any]]] = tomllib.loads(
    (Path(__file__).parent / "failure_kinds.toml").read_text("utf-8")
)
TOOLS: Final = KINDS["tool"]
REQUESTS: Final = KINDS["request"]


def called(kind: dict[str, Any], contents: Sequence[str], *, is_raised: bool = False) -> list[list[tuple[str, str]]]:
    """(class, owner) of the open failures of an episode for each of ``contents``."""
    world = World()
    arguments = json.loads(kind.get("arguments", '{"query": "weather in Paris"}'))
    name = kind.get("name", "search")
    traces = [trace_id(f"case {number}") for number in range(len(contents))]
    for number, (trace, content) in enumerate(zip(traces, contents, strict=True)):
        opening = [text("system", f"Case {number}."), *OPENING]
        said = asks(f"c{number}", name, arguments)
        world.call(opening, said, trace=trace)
        if is_raised:
            values = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.tool.call.id": f"c{number}",
            }
            world.span("tool", values, trace=trace, error=content, exception=(kind["exception"], content))
        world.call([*opening, said, answers(f"c{number}", content)], text("assistant", "21"), trace=trace)
        world.score(0.0, trace_id=trace)
    return verdicts_by_trace(world.convert(), traces)


def verdicts_by_trace(converted: Converted, traces: Sequence[str]) -> list[list[tuple[str, str]]]:
    named = converted.episodes.select("episode_id", pl.col("trace_ids").list.get(0).alias("trace"))
    rows = converted.failures.filter(~pl.col("is_recovered")).join(named, on="episode_id")
    found: dict[str, list[tuple[str, str]]] = {trace: [] for trace in traces}
    for trace, error_class, owner in rows.select("trace", "error_class", "fault_owner").iter_rows():
        found[trace].append((error_class, owner))
    assert converted.episodes.height == len(traces)
    return list(found.values())


@pytest.mark.parametrize("kind", TOOLS.values(), ids=TOOLS)
def test_a_tools_failure_told_in_text(kind: dict[str, Any]) -> None:
    for said, failures in zip(kind["texts"], called(kind, kind["texts"]), strict=True):
        ((error_class, owner),) = failures
        assert (error_class, owner in kind.get("told_owner", [kind["owner"]])) == (kind["class"], True), said


@pytest.mark.parametrize("name", [name for name, kind in TOOLS.items() if kind["exception"]])
def test_a_tools_failure_raised(name: str) -> None:
    kind = TOOLS[name]
    for said, failures in zip(kind["texts"], called(kind, kind["texts"], is_raised=True), strict=True):
        assert failures == [(kind["class"], kind["owner"])], said


@pytest.mark.parametrize("kind", [kind for kind in TOOLS.values() if kind["owner"] != "policy"])
def test_the_policy_is_charged_only_with_its_own(kind: dict[str, Any]) -> None:
    texts = kind["texts"]
    contents = [json.dumps({key: said}, ensure_ascii=False) for said in texts for key in ("message", "error")]
    contents += [json.dumps({"message": said}) for said in texts]
    for content, failures in zip(contents, called(kind, contents), strict=True):
        assert "policy" not in {owner for _, owner in failures}, content


@pytest.mark.parametrize("kind", REQUESTS.values(), ids=REQUESTS)
def test_a_request_raised(kind: dict[str, Any]) -> None:
    world = World()
    traces = [trace_id(f"case {number}") for number in range(len(kind["texts"]))]
    for trace, said in zip(traces, kind["texts"], strict=True):
        opening = [text("system", f"Trace {trace}."), *OPENING]
        world.call(opening, None, trace=trace, error=said, exception=(kind["exception"], said))
    found = verdicts_by_trace(world.convert(), traces)
    assert found == [[(kind["class"], kind["owner"])]] * len(traces)


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


NEGATIVE_REPLIES: Final = (
    "I do not have any.",
    "Kuchen gibt es heute nicht.",
    "No hay pastel.",
    "Não temos bolo.",
    "Il n'y a pas de gâteau.",
    "Торта нет.",
    "没有蛋糕。",
    "ケーキはありません。",
    "Could you name another one?",
    "请问是哪一个\uff1f",
)


@pytest.mark.parametrize("last", NEGATIVE_REPLIES)
@pytest.mark.parametrize("content", ["No cake here, K-4711.", '{"answer": "kein Kuchen"}', '"ケーキはない"'])
def test_an_answer_that_passes_on_a_negative_remark_charges_nobody(last: str, content: str) -> None:
    assert verdicts(told(content, last=last)) == [("tool_error", "unknown")]


@pytest.mark.parametrize(
    ("content", "last"),
    [
        ("There is carrot cake", "We do not have cake."),
        ('{"cakes": ["carrot", "apple"]}', "We do not have cake."),
        ("No cake here", "There is carrot cake."),
        ("No cake here", "No, but there are 12 pies."),
        ("No cake here\nbut pies, tarts and bread", "There is nothing."),
        ("No cake, for reasons that the chef explains here at length. " * 4, "There is nothing."),
    ],
)
def test_an_answer_that_does_more_than_pass_on_a_remark_stays_wrong(content: str, last: str) -> None:
    assert verdicts(told(content, last=last)) == [("wrong_answer", "policy")]


def test_figures_that_the_policy_was_given_are_no_data_of_a_remark() -> None:
    converted = told("weather in Paris: the 4711 is on strike", last="Sorry.")
    assert verdicts(converted) == [("wrong_answer", "policy")]
    world, asked = World(), asks("c1", arguments={"order": "K-4711"})
    world.call(OPENING, asked, trace=trace_id("t"))
    seen = [*OPENING, asked, answers("c1", "K-4711 streikt heute")]
    world.call(seen, text("assistant", "Es tut mir leid."), trace=trace_id("t"))
    world.score(0.0, trace_id=trace_id("t"))
    assert verdicts(world.convert()) == [("tool_error", "unknown")]


def test_a_tools_own_data_that_do_not_fit_are_not_the_policys() -> None:
    content = "Output validation error: 'price' is a required property"
    assert verdicts(told(content)) == [("tool_error", "unknown")]
