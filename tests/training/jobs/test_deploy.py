"""Test deployment over HTTP against a stand-in for the gateway."""

import json
import os
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from spanloop.foundation.errors import ConfigurationError, JobError, NotRunningError, ServiceError
from spanloop.foundation.paths import DataDir
from spanloop.training.jobs import job_outcomes, job_queue
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.models.registry import ModelVersion, Registry
from spanloop.training.promotion.deploy import deploy, stop_model
from spanloop.training.run.job_api import JobApi, JobLeaseLostError, JobSpec
from spanloop.training.run.transient import is_transient

from .support import FakeClock

TOKEN = "s3cret"


class Gateway(ThreadingHTTPServer):
    """Notes what it is asked and answers with ``status`` and ``answer``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.answer = "{}"
        self.asked: list[tuple[str, dict[str, str | int]]] = []
        self.hang = threading.Event()
        self.hang.set()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        gateway = self.server
        assert isinstance(gateway, Gateway)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        gateway.hang.wait(60)
        status = gateway.status if self.headers["Authorization"] == f"Bearer {TOKEN}" else 401
        gateway.asked.append((self.path, body))
        if status == 0:
            self.connection.close()
            return
        self.send_response(status)
        self.end_headers()
        self.wfile.write(gateway.answer.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@pytest.fixture
def gateway(data_dir: DataDir) -> Iterator[Gateway]:
    data_dir.gateway.mkdir()
    (data_dir.gateway / "admin.token").write_text(f"{TOKEN}\n")
    with Gateway() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        with data_dir.announce("gateway", f"http://127.0.0.1:{server.server_address[1]}"):
            yield server
        server.shutdown()
        thread.join()


def as_it_is(model: ModelVersion) -> Path:
    return model.path


def test_a_deployment_is_asked_for_and_recorded(data_dir: DataDir, registry: Registry, gateway: Gateway) -> None:
    assert deploy(data_dir, "tiny", serving_path=as_it_is) == registry.get("tiny@v1")
    body = {"name": "tiny", "version": "v1", "path": "models/tiny/v1"}
    assert gateway.asked == [("/admin/deploy", body)]
    assert registry.deployed() == registry.get("tiny@v1")


def test_a_model_is_served_beside_another_one_and_stopped(
    data_dir: DataDir, registry: Registry, gateway: Gateway
) -> None:
    deploy(data_dir, "tiny", serving_path=as_it_is, is_beside=True)
    assert gateway.asked[-1][1]["beside"] is True
    assert registry.deployed() == registry.get("tiny@v1")
    stop_model(data_dir, "tiny")
    assert gateway.asked[-1] == ("/admin/stop", {"model": "tiny"})
    gateway.status = 400
    with pytest.raises(ConfigurationError, match="did not stop tiny"):
        stop_model(data_dir, "tiny")
    gateway.status = 0
    with pytest.raises(ServiceError, match="did not answer"):
        stop_model(data_dir, "tiny")


def test_a_deployment_has_the_fingerprint_of_its_tokenizer(
    data_dir: DataDir, registry: Registry, gateway: Gateway
) -> None:
    (registry.get("tiny").path / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}, "merges": []}}')
    deploy(data_dir, "tiny", serving_path=as_it_is)
    assert gateway.asked[0][1]["tokenizer"] == registry.tokenizer_fingerprint("tiny@v1")


def test_the_serving_copy_is_what_is_deployed(
    data_dir: DataDir, registry: Registry, gateway: Gateway, tmp_path: Path
) -> None:
    assert deploy(data_dir, "tiny@v1", serving_path=lambda _model: tmp_path).reference == "tiny@v1"
    assert gateway.asked[0][1]["path"] == str(tmp_path)
    assert registry.deployments()[0].job_id is None


def test_without_a_gateway_the_next_step_is_named(data_dir: DataDir, registry: Registry) -> None:
    with pytest.raises(NotRunningError, match=r"No gateway runs(?s:.*)spanloop up"):
        deploy(data_dir, "tiny", serving_path=as_it_is)
    data_dir.write(data_dir.run / "gateway.json", json.dumps({"url": "http://127.0.0.1:9", "pid": os.getpid()}))
    with pytest.raises(ConfigurationError, match="admin token cannot be read"):
        deploy(data_dir, "tiny", serving_path=as_it_is)
    data_dir.write(data_dir.gateway / "admin.token", TOKEN)
    with pytest.raises(NotRunningError, match="spanloop up"):
        deploy(data_dir, "tiny", serving_path=as_it_is)
    assert registry.deployed() is None


@pytest.mark.parametrize("status", [400, 404, 500, 503])
def test_a_refused_deployment_says_what_the_gateway_said_and_leaves_no_record(
    data_dir: DataDir, registry: Registry, gateway: Gateway, status: int
) -> None:
    gateway.status, gateway.answer = status, '{"error": "the engine ran out of memory"}'
    with pytest.raises(ServiceError, match=rf"tiny@v1: got {status}.*ran out of memory"):
        deploy(data_dir, "tiny", serving_path=as_it_is)
    assert registry.deployed() is None


def test_a_wrong_token_is_an_error_of_configuration(data_dir: DataDir, registry: Registry, gateway: Gateway) -> None:
    data_dir.write(data_dir.gateway / "admin.token", "another")
    with pytest.raises(ConfigurationError, match="401"):
        deploy(data_dir, "tiny", serving_path=as_it_is)
    assert len(gateway.asked) == 1
    assert registry.deployed() is None


def test_a_gateway_that_hangs_or_breaks_off_is_named(data_dir: DataDir, registry: Registry, gateway: Gateway) -> None:
    gateway.hang.clear()
    with pytest.raises(ServiceError, match=r"within 0 s(?s:.*)gateway.log"):
        deploy(data_dir, "tiny", serving_path=as_it_is, timeout_s=0.2)
    gateway.hang.set()
    gateway.status = 0
    with pytest.raises(ServiceError, match="disconnected; "):
        deploy(data_dir, "tiny", serving_path=as_it_is)
    assert registry.deployed() is None


def test_versions_that_are_not_there_are_refused_before_anybody_is_asked(
    data_dir: DataDir, registry: Registry, gateway: Gateway
) -> None:
    with pytest.raises(JobError, match="no model version"):
        deploy(data_dir, "tiny@v2", serving_path=as_it_is)
    shutil.rmtree(registry.get("tiny").path)
    with pytest.raises(JobError, match="does not exist"):
        deploy(data_dir, "tiny", serving_path=as_it_is)
    assert gateway.asked == []


def test_a_gateway_whose_canary_compares_others_is_asked_again_later(
    data_dir: DataDir, gateway: Gateway, registry: Registry
) -> None:
    gateway.status, gateway.answer = 409, '{"error": {"code": "canary_running", "message": "a canary runs"}}'
    with pytest.raises(ServiceError, match="a canary runs") as caught:
        deploy(data_dir, "tiny", serving_path=as_it_is)
    assert is_transient(caught.value)
    assert not registry.deployments()


def test_a_stale_runner_deploys_nothing(
    *,
    data_dir: DataDir,
    registry: Registry,
    gateway: Gateway,
    api: JobApi,
    spec: JobSpec,
    database: ControlDatabase,
    clock: FakeClock,
) -> None:
    job = api.submit(spec)
    with database.write() as session:
        lease = job_queue.lease_next_job(session, owner="somebody", now=clock.now, until=clock.now)
    assert lease is not None
    deploy(data_dir, "tiny", job_id=job.id, token=lease.token, serving_path=as_it_is)
    assert registry.deployments()[0].job_id == job.id
    assert (gateway.asked[0][1]["holder"], gateway.asked[0][1]["token"]) == (f"job {job.id}", lease.token)
    # the gateway knows of a newer runner
    gateway.status, gateway.answer = 409, '{"error": {"code": "stale_token", "message": "is stale"}}'
    with pytest.raises(JobLeaseLostError, match="is stale"):
        deploy(data_dir, "tiny", job_id=job.id, token=lease.token, serving_path=as_it_is)
    gateway.asked.pop()
    with database.write() as session:
        job_outcomes.requeue_released(session, lease, now=clock.now)
    with pytest.raises(JobLeaseLostError):
        deploy(data_dir, "tiny", job_id=job.id, token=lease.token, serving_path=as_it_is)
    with pytest.raises(JobLeaseLostError):
        registry.record_deployment("tiny", job_id=job.id, token=lease.token)
    assert len(gateway.asked) == len(registry.deployments()) == 1
