"""Printing of markup, in pipes and on narrow terminals."""

import subprocess
import sys

import pytest

from spanloop.cli.console import print_error, print_table
from spanloop.cli.doctor import _print  # pyright: ignore[reportPrivateUsage]
from spanloop.runtime.check import Check
from spanloop.semconv.errors import ConfigurationError


def test_square_brackets_in_an_error_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(ConfigurationError("No [/red] here [x].", next_step="pip install 'spanloop[dashboard]'"))
    printed = capsys.readouterr().err
    assert "No [/red] here [x]." in printed
    assert "next: pip install 'spanloop[dashboard]'" in printed


def test_doctor_names_the_extra_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    _print(Check("extra train", ok=False, detail="missing torch", fix="pip install 'spanloop[train]'"))
    assert "pip install 'spanloop[train]'" in capsys.readouterr().out


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
