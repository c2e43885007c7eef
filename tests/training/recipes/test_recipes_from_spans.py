"""Each recipe from spans to a version: the spans of an agent, ``spanloop convert``, a job file, ``spanloop train``."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import polars as pl
import pytest
from typer.testing import CliRunner

from spanloop.cli import app as command_tree
from spanloop.pipeline import run as convert
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, DATA_DIR_ENV
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.training.dataset.export import select_dataset
from spanloop.training.dataset.manifest import DATA_NAME
from spanloop.training.models.base_model import read_base_model
from spanloop.training.models.registry import Registry
from spanloop.training.recipes.choices import Credit
from spanloop.training.run.job_api import JobApi
from spanloop.training.spec.job_spec import JobSpec

from ...collector.importing.test_remote_tables import ATTRIBUTES, EXPORTER_TABLE, RemoteDatabase
from ...converters.converters.converters_world import answers, asks, text, trace_id
from ...converters.converters.pipeline_feed import Feed
from ..recipe_kinds import KINDS, is_policy_gradient
from ..training_running import Runner, url_of
from ..training_seeding import token_logprobs

TASKS, ATTEMPTS = 3, 4
HOW_TO = Path(__file__).parents[3] / "docs" / "how-to" / "train-and-deploy.md"


def send_spans(store: Store, connection: Connection, model: Path) -> None:
    """Attempts at a few tasks, of two calls each, as spans with token ids; the first call and the whole are scored."""
    rng = random.Random(0)
    feed = Feed(store, connection)
    for task in range(TASKS):
        question = text("user", f"How warm is city {task}?")
        opening = [rng.randrange(3, 300) for _ in range(12)]
        for attempt in range(ATTEMPTS):
            name = f"{task}-{attempt}"
            trace, is_good = trace_id(name), attempt % 2
            asked, answered = asks(f"call-{name}"), text("assistant", "12." if is_good else f"Who knows {attempt}?")
            seen = [question]
            prompt = list(opening)
            for said, result in ((asked, answers(f"call-{name}", "12 degrees")), (answered, None)):
                response = [rng.randrange(3, 300) for _ in range(8)]
                tokens = {
                    "gen_ai.request.temperature": 1.0,
                    "spanloop.task.id": f"task-{task}",
                    "prompt_token_ids": json.dumps(prompt),
                    "response_token_ids": json.dumps(response),
                    "logprobs": json.dumps(token_logprobs(model, prompt, response)),
                }
                call = feed.world.call(seen, said, trace=trace, attributes=tokens)
                prompt = [*prompt, *response]
                if result is not None:
                    feed.world.tool(f"call-{name}", "12 degrees", trace=trace)
                    feed.world.score(float(attempt >= 2), trace_id=trace, span_id=call)
                    seen = [*seen, said, result]
                    prompt += [rng.randrange(3, 300) for _ in range(4)]
            feed.world.score(float(is_good), trace_id=trace)
    feed.send()
    convert(store)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_recipe_takes_spans_to_a_version(
    *,
    kind: str,
    runner: Runner,
    store: Store,
    connection: Connection,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, url_of(runner.address))
    send_spans(store, connection, tiny_model)
    credit = 'credit = "process"\n' if is_policy_gradient(kind) else ""
    file = tmp_path / "job.toml"
    file.write_text(
        f'base = "tiny"\nkind = "{kind}"\nsteps = 2\nbatch_groups = 3\nlearning_rate = 1e-3\n{credit}'
        'backbone = "debug"\ndevice = "cpu"\n'
    )
    arguments = ["train", str(file), "--foreground", "--data-dir", str(runner.data_dir.path)]
    completed = CliRunner().invoke(command_tree.app, arguments)
    assert completed.exit_code == 0, completed.output
    (job,) = JobApi(runner.data_dir).list()
    version = Registry(runner.data_dir).get("tiny")
    assert (job.model_version, version.reference) == ("tiny@v2", "tiny@v2")
    assert version.weights_sha256 != Registry(runner.data_dir).get("tiny@v1").weights_sha256
    rows = pl.read_parquet(runner.data_dir.jobs / job.id / DATA_NAME)
    assert rows["source"].unique().to_list() == ["captured"]
    assert rows["episode_id"].n_unique() == TASKS * ATTEMPTS // (2 if kind == "sft" else 1)
    samples = store.query("training_samples", job_id=job.id)
    assert samples["step"].unique().sort().to_list() == [1, 2]


def test_the_scores_of_calls_reach_the_tokens_of_their_steps(
    store: Store, connection: Connection, tiny_model: Path
) -> None:
    send_spans(store, connection, tiny_model)
    base = read_base_model("tiny@v1", tiny_model)
    spec = JobSpec.of(base="tiny", credit=Credit.PROCESS)
    rows = select_dataset(store, spec, base, {base.reference: base.tokenizer}.get).rows
    assert rows.height == TASKS * ATTEMPTS
    attempts = [
        [1.0] * 8 + [0.0] * 4 + [0.5] * 8,
        [0.0] * 12 + [0.5] * 8,
        [0.0] * 12 + [-0.5] * 8,
        [-1.0] * 8 + [0.0] * 4 + [-0.5] * 8,
    ]
    assert sorted(rows["advantages"].to_list()) == sorted(attempts * TASKS)


INSERT = """
INSERT INTO otel_traces (Timestamp, TraceId, SpanId, SpanName, ServiceName, SpanAttributes, Duration, StatusCode)
VALUES ({moment:String}, {trace_id:String}, {span_id:String}, 'chat', 'app',
        mapFromArrays({keys:Array(String)}, {values:Array(String)}), 5, 'Unset')
"""


@pytest.fixture
def remote(address: Address) -> Iterator[RemoteDatabase]:
    """Another database on the server."""
    name = f"theirs_{uuid4().hex[:12]}"
    database = RemoteDatabase(replace(address, database=name))
    yield database
    database.make(f"DROP DATABASE {name}")
    database.connection.close()


def export_calls(remote: RemoteDatabase) -> None:
    """Four calls of a vendor's model in an exporter's table, each scored."""
    remote.make(EXPORTER_TABLE.format(map=ATTRIBUTES))
    for number in range(4):
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "vendor-large",
            "gen_ai.input.messages": json.dumps([text("user", f"How warm is city {number}?")]),
            "gen_ai.output.messages": json.dumps([text("assistant", f"{number} degrees.") | {"finish_reason": "stop"}]),
            "gen_ai.evaluation.score.value": "1",
        }
        parameters = {
            "moment": f"2026-11-01 00:00:0{number}",
            "trace_id": f"{number + 1:032x}",
            "span_id": f"{number + 1:016x}",
            "keys": list(attributes),
            "values": list(attributes.values()),
        }
        remote.connection.command(INSERT, doing="exporting", parameters=parameters)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_how_to_takes_a_table_of_another_models_spans_to_a_version(
    *, runner: Runner, store: Store, remote: RemoteDatabase, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.database == runner.address.database
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, url_of(runner.address))
    monkeypatch.setenv(DATA_DIR_ENV, str(runner.data_dir.path))
    export_calls(remote)
    section = HOW_TO.read_text().partition("## From a table of spans to a version")[2]
    commands = section.partition("```bash\n")[2].partition("```")[0].splitlines()
    here = {
        "http://reader@otel-db:8123/otel": remote.url,
        "smollm2": str(tiny_model),
        "--wait": "--steps 2 --backbone debug --foreground",
    }
    printed: list[str] = []
    for command in commands:
        words = command.partition("#")[0].split()
        arguments = [part for word in words[1:] for part in here.get(word, word).split()]
        completed = CliRunner().invoke(command_tree.app, arguments)
        assert completed.exit_code == 0, (command, completed.output)
        printed.append(completed.output)
    assert len(commands) == 6
    assert "rendered 4" in printed[3]
    assert "mine@v2" in printed[5]
