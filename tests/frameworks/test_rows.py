"""The matrix's rows at older releases, and their stored results."""

from pathlib import Path

import pytest
from framework_matrix import results
from framework_matrix.__main__ import ROWS
from framework_matrix.recording import AppRun
from framework_matrix.results import RowResult
from framework_matrix.rows import Row
from framework_matrix.through_gateway import cells

RESULT = RowResult("App", "2.0", (), {"model calls": ""}, 1.0)


@pytest.mark.parametrize("requirement", ["app", "app[openai]", "app<2", "app[openai]<2"])
def test_a_row_at_an_older_release_pins_its_first_package(requirement: str) -> None:
    row = Row("app", "App", (requirement, "other"))
    assert row.package == "app"
    assert row.at("1.0").packages == (f"{requirement.partition('<')[0]}==1.0", "other")
    assert row.at("1.0").package == "app"


def test_rows_have_names_of_their_own_and_apps() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    folder = Path(__file__).parent
    for row in ROWS:
        app = f"javascript/{row.app}_app.mjs" if row.is_javascript else f"apps/{row.app or row.name}.py"
        assert (folder / app).exists(), app


def test_a_row_of_npm_is_named_without_its_version() -> None:
    row = Row("app", "App", ("@scope/app@1.2.3",), is_javascript=True)
    assert row.package == "@scope/app"


def test_programs_through_the_gateway_are_judged_by_answers_and_captures() -> None:
    row = Row("app", "App", ("app",))
    answers = {
        "ticket-report-1": "Done with ticket-report-1.",
        "ticket-stream-1": "Done with ticket-stream-1.",
        "ticket-schema-1": '{"degrees": 7, "city": "Oslo"}',
    }
    right = dict.fromkeys(("chat", "stream", "tool round trip", "schema", "captures"), "")
    assert cells(row, AppRun(answers, {}, "", 0), 9) == right
    assert cells(row, AppRun(answers, {}, "", 0), 8)["captures"] == "8 of 9 answers are captured"
    other = cells(row, AppRun(answers | {"ticket-schema-1": "{}"}, {}, "", 0), 9)
    assert [column for column, reason in other.items() if reason] == ["schema"]
    shell = {"ticket-shell-1": "Done with ticket-shell-1. Oslo has 7 degrees"}
    assert cells(row, AppRun(shell, {}, "", 0), 2) == {**right, "schema": None}
    failed = cells(row, AppRun({}, {"ticket-stream-1": "Traceback\nValueError: x"}, "", 0), 0)
    assert failed["stream"] == "the app failed: ValueError: x"
    assert cells(row, AppRun({}, {}, "no such module", 1), 0) == {"chat": "the app failed: no such module"}


def test_a_new_result_keeps_the_oldest_release_and_the_chat_with_a_served_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results.json")
    results.save("app", RESULT)
    results.save_oldest("app", "1.0")
    results.save_served("app", "no answer")
    assert not results.load()["app"].is_right
    results.save_served("app", "")
    results.save("app", RESULT._replace(version="3.0"))
    assert results.load() == {"app": RESULT._replace(version="3.0", oldest="1.0", served="")}
    assert results.load()["app"].is_right
