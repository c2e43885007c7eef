"""``spanloop extensions`` lists built-ins and packages alike; a broken package costs its line."""

import os
import subprocess
import sys
from pathlib import Path

ENTRY_POINTS = """
[spanloop.graders]
near = tiny_graders:near
gone = tiny_graders:nothing
[spanloop.rules]
broken = tiny_missing:rule
"""
MODULE = '''
def near(task, answer, within: float = 1.0):
    """Compare with a tolerance."""
    return 1.0
'''


def listed(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "spanloop.cli", "extensions", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_help_and_options_of_built_ins_and_packages_are_listed(tmp_path: Path) -> None:
    info = tmp_path / "tiny_graders-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-graders\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "tiny_graders.py").write_text(MODULE)
    completed = listed(tmp_path, "graders")
    assert completed.returncode == 0, completed.stderr
    lines = completed.stdout.splitlines()
    assert lines[0] == "graders (entry points of the group spanloop.graders)"
    numeric = lines.index(next(line for line in lines if line.startswith("  numeric: 1 when")))
    assert lines[numeric + 2].startswith("      relative=1e-06 ")
    assert lines[numeric + 2].endswith(" Tolerance as a share of the expected number.")
    near = lines.index("  near (tiny-graders 1.0): Compare with a tolerance.")
    assert lines[near + 1].split() == ["within=1.0"]
    (gone,) = [line for line in lines if line.startswith("  gone")]
    assert gone.startswith("  gone (tiny-graders 1.0): cannot be used: Entry point 'gone' of group spanloop.graders in")
    every = listed(tmp_path)
    assert every.returncode == 0, every.stderr
    assert "No module named 'tiny_missing'" in every.stdout
    assert "  loop: The same actions" in every.stdout
    assert "selections (entry points of the group spanloop.selections)\n  none" in every.stdout
    assert "  overview: Services" in every.stdout


def test_an_unknown_kind_is_named_with_those_that_exist(tmp_path: Path) -> None:
    completed = listed(tmp_path, "grader")
    assert completed.returncode == 2
    assert "There is no kind 'grader' of extensions" in completed.stderr
    assert "graders" in completed.stderr
