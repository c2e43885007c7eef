"""Printing of markup, in pipes and on narrow terminals."""

import io
import subprocess
import sys

import pytest

from spanloop.cli import console
from spanloop.cli.console import print_error, print_table
from spanloop.cli.services.doctor import _print  # pyright: ignore[reportPrivateUsage]
from spanloop.foundation.errors import ConfigurationError
from spanloop.runtime.check import Check

from .support import Run


def test_square_brackets_in_an_error_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(ConfigurationError("No [/red] here [x].", next_step="pip install '/path/to/spanloop[dashboard]'"))
    printed = capsys.readouterr().err
    assert "No [/red] here [x]." in printed
    assert "next: pip install '/path/to/spanloop[dashboard]'" in printed


EMOJI_CODES = "swe-bench:lock:17 ev/ok:100:"


def test_emoji_codes_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_table((EMOJI_CODES, "[b]"), [(EMOJI_CODES, EMOJI_CODES)])
    console.out.print(EMOJI_CODES, markup=False)
    console.out.print(f"[dim]{EMOJI_CODES}[/dim]")
    print_error(ConfigurationError(EMOJI_CODES, next_step=EMOJI_CODES))
    printed = capsys.readouterr()
    assert printed.out.count(EMOJI_CODES) == 5
    assert printed.err.count(EMOJI_CODES) == 2
    assert "[b]" in printed.out


def test_emoji_codes_in_displays_of_progress_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_file", io.StringIO()), ("_force_terminal", True), ("_width", 200)):
        monkeypatch.setattr(console.err, name, value)
    with console.err.status(console.markup_text(EMOJI_CODES)) as spinner:
        console.err.print(spinner.renderable)
    with console.progress_bar() as bar:
        bar.add_task(EMOJI_CODES, note=EMOJI_CODES)
    assert str(console.err.file.getvalue()).count(EMOJI_CODES) >= 3  # type: ignore[attr-defined]


def test_emoji_codes_in_a_usage_error_are_text(spanloop: Run) -> None:
    assert "x:lock:1" in spanloop("run", "tasks.jsonl", "--agent", "true", "--env", "x:lock:1").stderr


def test_doctor_names_the_extra_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    _print(Check("extra train", ok=False, detail="missing torch", fix="pip install '/path/to/spanloop[train]'"))
    assert "pip install '/path/to/spanloop[train]'" in capsys.readouterr().out


def test_a_piped_table_has_whole_rows() -> None:
    long = "word " * 60
    code = f"from spanloop.cli.console import print_table; print_table(('id', 'text'), [('[a]', {long!r})])"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    title, row = completed.stdout.splitlines()
    assert title.split() == ["id", "text"]
    assert row.split() == ["[a]", *long.split()]


def test_a_narrow_terminal_keeps_ids_whole(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanloop.cli.console.out._width", 60)
    print_table(("job", "error"), [("grpo-20261120-081402-e9822c24", "word " * 20)])
    assert "grpo-20261120-081402-e9822c24" in capsys.readouterr().out
