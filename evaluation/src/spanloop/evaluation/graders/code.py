"""Run the answer's code and then the task's tests, in a process with resource limits.

This is no sandbox: the code runs as the user who runs spanloop, and may read and write that user's files and use the
network. Run untrusted code in a container.

Invariant: a test counts as passed only when the harness says so under a token that is made for this run, so code that
ends the process early, or prints what it likes, passes nothing.
"""

import json
import os
import secrets
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from pydantic import Field, JsonValue

from spanloop.converters.rewards.comparison import fenced, text_of
from spanloop.evaluation.tasks import Task
from spanloop.foundation.processes.limited import Launch, LimitedProcess, Wakeup
from spanloop.foundation.processes.marked import VariableMark
from spanloop.semconv.environment import PROCESS_MARK_ENV

from .base import Grader, GradingError
from .verdict import Verdict

_HARNESS: Final = Path(__file__).with_name("code_harness.py")
_OUTPUT_BYTES: Final = 64 << 10
_SHOWN: Final = 1_000
_MEBIBYTE: Final = 1 << 20


class _Outcome(NamedTuple):
    lines: list[str]
    """What was written to the results."""
    status: int
    output: str
    is_timed_out: bool


class CodeGrader(Grader):
    """Runs tests."""

    version: ClassVar[str] = "1"
    summary: ClassVar[str] = (
        "The share of the task's Python tests that pass after the answer's code (its last code fence) has run; a "
        "success when all pass. In a process with limits on time, memory and file size. **This is no sandbox**: run "
        "untrusted code in a container."
    )

    tests: str = "tests"
    """The task's field that holds the tests: Python source, or a list of them, each of which counts."""
    prelude: str = ""
    """A field with code that runs before the answer; empty for none."""
    entry_point: str = ""
    """A field with the name of the answer's function, which `check(NAME)` is called with behind each test, as in
    HumanEval; empty for none."""
    python: str = ""
    """The interpreter; empty takes the running one."""
    timeout_s: float = Field(default=10.0, gt=0)
    """Longest time of all tests together."""
    memory_mib: int = Field(default=1_024, ge=64)
    """Address space of the process."""
    file_mib: int = Field(default=16, ge=1)
    """Largest file that the process may write."""

    def required_fields(self) -> Sequence[str]:
        """Return the fields that each task needs."""
        return tuple(name for name in (self.tests, self.prelude, self.entry_point) if name)

    def grade(self, task: Task, answer: str) -> Verdict:
        """Return the share of the tests that pass.

        Raises:
            GradingError: The task has no test, or the interpreter cannot be started.
        """
        tests = self._tests(task)
        prelude = text_of(task.fields[self.prelude]) if self.prelude else ""
        token = secrets.token_hex(16)
        request = {
            "token": token,
            "code": f"{prelude}\n{fenced(answer)}",
            "tests": tests,
            "memory_bytes": self.memory_mib * _MEBIBYTE,
            "file_bytes": self.file_mib * _MEBIBYTE,
            "cpu_s": int(self.timeout_s) + 1,
        }
        try:
            outcome = self._run(json.dumps(request).encode())
        except OSError as error:
            interpreter = self.python or sys.executable
            raise GradingError(f"The tests of task {task.id!r} cannot be run with {interpreter}: {error}.") from error
        results = [line.partition(" ")[2] for line in outcome.lines if line.startswith(f"{token} ")]
        failures = [line for line in results if line]
        passed = len(results) - len(failures)
        if len(results) < len(tests):
            failures.append("out of time" if outcome.is_timed_out else f"ended with status {outcome.status}")
        return Verdict.of(
            passed / len(tests),
            is_success=passed == len(tests),
            passed=passed,
            tests=len(tests),
            failure=failures[0] if failures else "",
            output=outcome.output,
            answer=answer,
        )

    def _tests(self, task: Task) -> list[str]:
        value: JsonValue = task.fields[self.tests]
        tests = [text_of(test) for test in value] if isinstance(value, list) else [text_of(value)]
        if not tests:
            raise GradingError(f"Field {self.tests!r} of task {task.id!r} holds no test.")
        call = f"\ncheck({text_of(task.fields[self.entry_point])})" if self.entry_point else ""
        return [test + call for test in tests]

    def _run(self, request: bytes) -> _Outcome:
        mark = secrets.token_hex(8)
        with (
            tempfile.TemporaryDirectory(prefix="spanloop-code-") as folder,
            tempfile.TemporaryFile() as stdin,
            tempfile.TemporaryFile() as results,
        ):
            stdin.write(request)
            stdin.seek(0)
            launch = Launch(
                command=[self.python or sys.executable, "-I", str(_HARNESS), str(results.fileno())],
                environment={"PATH": os.defpath, "HOME": folder, "TMPDIR": folder, PROCESS_MARK_ENV: mark},
                mark=VariableMark(PROCESS_MARK_ENV, mark),
                cwd=Path(folder),
                stdin=stdin,
                pass_fds=(results.fileno(),),
                output_bytes=_OUTPUT_BYTES,
            )
            with LimitedProcess(launch) as process:
                ended = process.wait(self.timeout_s)
                status = process.end()
            results.seek(0)
            lines = results.read().decode("utf-8", "replace").splitlines()
        output = (process.stdout.text + process.stderr.text)[-_SHOWN:]
        return _Outcome(lines, status, output, is_timed_out=ended is Wakeup.TIMED_OUT)
