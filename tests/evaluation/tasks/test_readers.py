"""Every reader gives the records of its source, with their places."""

import csv
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from spanloop.evaluation.tasks import Rejected, RejectedReason, TaskReading, read_tasks
from spanloop.evaluation.tasks.readers import find_reader
from spanloop.foundation.errors import ConfigurationError
from spanloop.pipeline import run as convert
from spanloop.store import Store
from spanloop.store.data_sets import add_to_data_set
from spanloop.store.scores import Score, add_scores

from ...conftest import MakeFrame
from ...training.fake_hub import fake_hub

ROWS = [{"id": f"t{n}", "question": f"what is {n}, really?", "answer": str(n)} for n in range(5)]


def contents(source: str, **options: str) -> list[dict[str, object]]:
    return [{"id": task.id, **task.fields} for task in read_tasks(source, options=options)]


def test_jsonl_plain_and_compressed(tmp_path: Path) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    (tmp_path / "tasks.jsonl").write_text("\ufeff" + lines)
    (tmp_path / "tasks.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    assert contents(str(tmp_path / "tasks.jsonl")) == ROWS
    assert contents(str(tmp_path / "tasks.jsonl.gz")) == ROWS


@pytest.mark.parametrize(("name", "delimiter"), [("tasks.csv", ","), ("tasks.tsv", "\t")])
def test_csv_with_a_header(tmp_path: Path, name: str, delimiter: str) -> None:
    path = tmp_path / name
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(ROWS)
    assert contents(str(path)) == ROWS


def test_a_csv_row_of_another_length_is_rejected_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "tasks.csv"
    path.write_text('id,question\na,"two\nlines"\nb\nc,,\nd,fine\n')
    rejected: list[Rejected] = []
    tasks = list(TaskReading(str(path), on_reject=rejected.append))
    assert [(task.id, task.fields) for task in tasks] == [
        ("a", {"question": "two\nlines"}),
        ("d", {"question": "fine"}),
    ]
    assert [each.place.rpartition(":")[2] for each in rejected] == ["4", "5"]


def test_parquet_with_lists_and_nulls(tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": [1, 2], "answers": [["a", "b"], []], "hint": [None, "x"]})
    rows.write_parquet(tmp_path / "tasks.parquet")
    assert contents(str(tmp_path / "tasks.parquet")) == [
        {"id": "1", "answers": ["a", "b"]},
        {"id": "2", "answers": [], "hint": "x"},
    ]
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        contents(str(tmp_path / "broken.parquet"))


def test_a_hugging_face_folder_and_its_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    rows = datasets.Dataset.from_list(ROWS)
    rows.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict(train=rows, test=rows.select([0])).save_to_disk(str(tmp_path / "two"))
    (tmp_path / "files").mkdir()
    rows.to_parquet(str(tmp_path / "files" / "train.parquet"))
    assert contents(str(tmp_path / "one")) == contents(str(tmp_path / "files")) == ROWS
    assert contents(str(tmp_path / "two"), split="test") == ROWS[:1]
    with pytest.raises(ConfigurationError, match="several splits") as caught:
        contents(str(tmp_path / "two"))
    assert "train, test" in caught.value.next_step
    with pytest.raises(ConfigurationError, match="no split 'dev'"):
        contents(str(tmp_path / "two"), split="dev")


def test_generated_tasks_depend_on_their_seed() -> None:
    pytest.importorskip("reasoning_gym")
    source = "reasoning-gym:chain_sum"
    first = contents(source, size="3", seed="1", min_terms="2", max_terms="2")
    assert len(first) == 3
    assert {"question", "answer", "metadata"} <= set(first[0])
    assert first == contents(source, size="3", seed="1", min_terms="2", max_terms="2")
    assert first != contents(source, size="3", seed="2", min_terms="2", max_terms="2")
    with pytest.raises(ConfigurationError, match="no_such_thing"):
        contents("reasoning-gym:no_such_thing")


@pytest.fixture
def own_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "own_reader.py").write_text(
        "def read(source, **options):\n"
        "    yield {'id': 'one', 'source': source, **options}\n"
        "    yield 'no mapping'\n"
        "    raise OSError('the wire is cut')\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield
    sys.modules.pop("own_reader", None)


@pytest.mark.usefixtures("own_reader")
def test_a_reader_of_ones_own_and_what_it_fails_at() -> None:
    rejected: list[Rejected] = []
    reading = TaskReading("db://x", reader="own_reader:read", options={"table": "t"}, on_reject=rejected.append)
    assert [(task.id, task.fields) for task in reading] == [("one", {"source": "db://x", "table": "t"})]
    assert [each.detail for each in rejected] == [
        "expected named fields, got 'no mapping'",
        (
            "task reader 'own_reader:read' raised OSError: the wire is cut; it had read 2 records, and the rest "
            "is not read"
        ),
    ]
    assert [each.place for each in rejected] == ["own_reader:read:2", "own_reader:read:3"]
    assert reading.rejected == {RejectedReason.BROKEN: 1, RejectedReason.READER_FAILED: 1}


def test_options_of_a_callable_are_its_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "typed_reader.py").write_text(
        "def read(source, count: int, *, prefix='t'):\n"
        "    return [{'id': f'{prefix}{number}', 'q': number} for number in range(count)]\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "typed_reader", raising=False)
    reading = TaskReading("x", reader="typed_reader:read:count=2", options={"prefix": "u"})
    assert [task.id for task in reading] == ["u0", "u1"]
    for options, message in (
        ({}, "option 'count' is required"),
        ({"count": "many"}, "option 'count' is 'many', expected a valid integer"),
        ({"count": "1", "prefx": "t"}, "no option 'prefx' .got 't'.; did you mean 'prefix'"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            find_reader("x", "typed_reader:read", options)


@pytest.mark.parametrize(
    ("body", "cause", "accepted"),
    [
        ("raise FileNotFoundError(source)", "FileNotFoundError: db://x; it had read 0 records", 0),
        ("return 5", "TypeError: 'int' object is not iterable; it had read 0 records", 0),
        ("yield {'q': 1}; import sys; sys.exit('no licence')", "SystemExit: no licence; it had read 1 records", 1),
        ("return [{'q': 1}, {'q': 2}, Broken(), {'q': 3}]", "", 3),
        ("yield {'q': 1}; yield {'q': Broken()}; yield {'q': 2}", "", 2),
    ],
)
def test_whatever_a_reader_of_ones_own_raises_ends_its_source_and_not_the_run(
    body: str, cause: str, accepted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raising_reader.py").write_text(
        "from collections.abc import Mapping\n"
        "class Broken(Mapping):\n"
        "    def __iter__(self): raise KeyError('gone')\n"
        "    def __getitem__(self, name): raise KeyError('gone')\n"
        "    def __len__(self): return 1\n"
        f"def read(source, **options):\n    {body}\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "raising_reader", raising=False)
    rejected: list[Rejected] = []
    reading = TaskReading("db://x", reader="raising_reader:read", on_reject=rejected.append)
    assert len(list(reading)) == reading.accepted == accepted
    (failure,) = rejected
    assert failure.reason is (RejectedReason.READER_FAILED if cause else RejectedReason.BROKEN)
    assert cause in failure.detail


@pytest.mark.slow
def test_a_dataset_of_the_hub_is_read_by_its_id(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    code = (
        "import json, sys; from spanloop.evaluation.tasks import read_tasks\n"
        "tasks = read_tasks('huggingface:acme/shop', options={'split': 'test'})\n"
        "print(json.dumps([{'id': task.id, **task.fields} for task in tasks]))\n"
        "read_tasks('huggingface:acme/none')\n"
    )
    with fake_hub({"acme/shop": folder}, kind="datasets") as (url, downloaded):
        environment = {**os.environ, "HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}
        command = [sys.executable, "-c", code]
        completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=250)
    assert completed.stdout, completed.stderr
    assert json.loads(completed.stdout) == ROWS
    assert downloaded
    assert "acme/none cannot be read" in completed.stderr


MESSAGES = '[{"role":"user","parts":[{"type":"text","content":"%s"}]}]'
CALL = '[{"role":"assistant","parts":[{"type":"tool_call","id":"c1","name":"add","arguments":{"a":1}}]}]'


def insert_call(store: Store, frame_of: MakeFrame, number: int, prompt: str, output: str, **attributes: str) -> None:
    span = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.response.id": f"r{number}",
        "gen_ai.input.messages": prompt if prompt.startswith("[") else MESSAGES % prompt,
        "gen_ai.output.messages": output if output.startswith("[") else MESSAGES.replace("user", "assistant") % output,
        **attributes,
    }
    row = {
        "Timestamp": 10**18 + number * 10**9,
        "TraceId": f"{number:032x}",
        "SpanId": f"{number:016x}",
        "ServiceName": "shop",
        "SpanAttributes": span,
        "Duration": 10**6,
    }
    store.insert("otel_traces", frame_of("otel_traces", [row]))


def test_stored_episodes_of_one_beginning_are_one_task(store: Store, frame_of: MakeFrame) -> None:
    insert_call(store, frame_of, 1, "what is 1+1?", "3")
    insert_call(store, frame_of, 2, "what is 1+1?", "2")
    key = {"spanloop.episode.id": "e3", "spanloop.task.id": "sum/3"}
    insert_call(store, frame_of, 3, "add it", CALL, **key)
    tool = '{"role":"tool","parts":[{"type":"tool_call_response","id":"c1","response":"5"}]}'
    history = MESSAGES[:-1] % "add it" + "," + CALL[1:-1] + "," + tool + "]"
    insert_call(store, frame_of, 4, history, "five", **key)
    insert_call(store, frame_of, 5, "unscored", "x")
    rewards = {1: 0.0, 2: 1.0, 3: 1.0}
    add_scores(store, [Score(value=value, trace_id=f"{number:032x}") for number, value in rewards.items()])
    convert(store)
    reading = TaskReading("stored-traces:", store=store)
    tasks = {str(task.fields["prompt"]): task for task in reading}
    assert {prompt: task.fields.get("answer") for prompt, task in tasks.items()} == {
        "what is 1+1?": "2",
        "add it": "five",
        "unscored": None,
    }
    assert tasks["add it"].id == "sum/3"
    assert tasks["add it"].fields["reference_calls"] == [{"name": "add", "arguments": {"a": 1}}]
    assert tasks["add it"].fields["messages"] == [{"role": "user", "content": "add it"}]
    assert not reading.rejected
    assert [task.id for task in TaskReading("stored-traces:sum/", store=store)] == ["sum/3"]
    assert not list(TaskReading("stored-traces:", options={"service": "other"}, store=store))
    late = {"since": "2026-01-01T00:00:00"}
    assert not list(TaskReading("stored-traces:", options=late, store=store))
    add_to_data_set(store, "sums", ["e3"], created_by="ann", source="selection")
    for data_set in ("sums", "sums@v1"):
        assert [task.id for task in TaskReading("stored-traces:", options={"data_set": data_set}, store=store)] == [
            "sum/3"
        ]
