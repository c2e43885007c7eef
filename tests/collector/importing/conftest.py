"""Fixtures for tests of imports: files to import, and an import that collects the rejections."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from spanloop.importing import Reject, Report, import_paths
from spanloop.store import Store

Write: TypeAlias = Callable[..., Path]


class Imported(NamedTuple):
    """The result of an import."""

    report: Report
    rejects: list[Reject]


Import: TypeAlias = Callable[..., Imported]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file: lines (objects become JSON), or bytes."""

    def make(content: bytes | Iterable[object], name: str = "input.jsonl") -> Path:
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            lines = (line if isinstance(line, str) else json.dumps(line) for line in content)
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return make


@pytest.fixture
def run(store: Store) -> Import:
    """Import paths; accepted + rejected = input always holds."""

    def call(*paths: Path) -> Imported:
        rejects: list[Reject] = []
        report = import_paths(store, paths, on_reject=rejects.append)
        assert report.accepted + report.rejected_total == report.input
        assert sum(reject.items for reject in rejects) == report.rejected_total
        return Imported(report, rejects)

    return call


def conversation(**changes: object) -> Mapping[str, object]:
    """A short episode with a tool call."""
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    line: dict[str, object] = {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Weather in Paris?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "name": "weather", "content": "57F"},
            {"role": "assistant", "content": "57F."},
        ],
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}],
        "reward": 1.0,
        "task_id": 7,
        "agent": "guide",
        "timestamp": "2026-01-02T03:04:05Z",
    }
    return line | changes
