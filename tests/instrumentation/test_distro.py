"""``opentelemetry-instrument python app.py``, from the outside."""

import json
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import pytest

from .support import EXAMPLES, App, FakeModel, Receiver, SeenSpan, calls, says

since_1_43 = pytest.mark.skipif(
    tuple(map(int, version("opentelemetry-sdk").split(".")[:2])) < (1, 43),
    reason="OpenTelemetry 1.42 warns of what it does itself, and reads no configuration file",
)

ONE_CALL = """
import openai
client = openai.OpenAI()
messages = [{"role": "user", "content": "hi"}]
print(client.chat.completions.create(model="tiny", messages=messages).choices[0].message.content)
"""

MANUAL_SPAN = """
from opentelemetry import trace
with trace.get_tracer("app").start_as_current_span("manual"):
    print("working")
"""

AGENT_SCRIPT = (
    calls("get_weather", {"city": "Bergen"}, "call-1"),
    calls("get_weather", {"city": "Atlantis"}, "call-2"),
    says("Bergen is wet; nobody knows about Atlantis."),
)
AGENT_OUTPUT = """\
Cycle in Bergen or Atlantis?
  get_weather({"city": "Bergen"}) -> {"temperature_c": 9.0, "rain_mm": 14.2, "wind_kmh": 31.0}
  get_weather({"city": "Atlantis"}) -> {"error": "KeyError: 'atlantis'"}
Bergen is wet; nobody knows about Atlantis.
"""


def _text(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"content": content, "type": "text"}]}


def _parsed(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) and value[:1] in "[{" else value


def test_the_example_agent_is_traced_with_no_code_change_and_no_variable(
    traced_app: App, receiver: Receiver, model: FakeModel
) -> None:
    model.script = AGENT_SCRIPT
    ran = traced_app.run(EXAMPLES / "weather_agent.py", "Cycle in Bergen or Atlantis?", launcher=True)
    assert (ran.stdout, ran.stderr, ran.code) == (AGENT_OUTPUT, "", 0)

    spans = sorted(receiver.spans, key=lambda span: span.start_ns)
    assert [(span.name, span.kind, span.parent_span_id) for span in spans] == [("openai.chat", 3, "")] * 3
    assert {span.resource["service.name"] for span in spans} == {"weather_agent"}
    seen = {name: _parsed(value) for name, value in spans[1].attributes.items()}
    definitions = seen.pop("gen_ai.tool.definitions")
    assert [tool["name"] for tool in definitions] == ["get_weather", "convert_temperature", "compare"]
    call = {"type": "tool_call", "id": "call-1", "name": "get_weather", "arguments": {"city": "Bergen"}}
    assert seen.pop("gen_ai.input.messages")[1:] == [
        _text("user", "Cycle in Bergen or Atlantis?"),
        {"role": "assistant", "parts": [call]},
        {
            "role": "tool",
            "parts": [
                {
                    "type": "tool_call_response",
                    "id": "call-1",
                    "response": '{"temperature_c": 9.0, "rain_mm": 14.2, "wind_kmh": 31.0}',
                }
            ],
        },
    ]
    call = {"type": "tool_call", "id": "call-2", "name": "get_weather", "arguments": {"city": "Atlantis"}}
    assert seen == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "tiny",
        "gen_ai.is_streaming": False,
        "gen_ai.openai.api_base": model.url + "/",
        "gen_ai.response.model": "tiny@v1",
        "gen_ai.response.id": "chatcmpl-2",
        "gen_ai.response.finish_reasons": ["tool_call"],
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.total_tokens": 10,
        "gen_ai.output.messages": [{"role": "assistant", "parts": [call], "finish_reason": "tool_call"}],
    }


def test_the_launcher_gives_an_app_what_these_tests_give_it(app: App) -> None:
    script = "import os, sys\nprint(sys.argv, sys.path, os.getcwd(), sorted(os.environ.items()))"
    for user in (app, app.with_variables(PYTHONPATH="/mine")):
        launched = user.run(script, "Cycle?", launcher=True)
        assert (launched.code, launched.stderr) == (0, "")
        assert launched == replace(user.run(script, "Cycle?"), exit_delay_s=launched.exit_delay_s)


def test_requests_are_protobuf_and_gzipped_if_the_user_says_so(traced_app: App, receiver: Receiver) -> None:
    traced_app.run(MANUAL_SPAN)
    traced_app.with_variables(OTEL_EXPORTER_OTLP_COMPRESSION="gzip").run(MANUAL_SPAN)
    assert len(receiver.spans) == 2
    for request, encoding in zip(receiver.requests, (None, "gzip"), strict=True):
        assert request.path == "/v1/traces"
        headers = {name.lower(): value for name, value in request.headers.items()}
        assert headers["content-type"] == "application/x-protobuf"
        assert headers.get("content-encoding") == encoding


TASK_APP = """
import threading
from concurrent.futures import ThreadPoolExecutor
from opentelemetry import trace
from spanloop.instrumentation import reward, task

tracer = trace.get_tracer("app")
tracer.start_span("before").end()
with task("task-17", session_id="s-1", agent_name="scout"):
    with tracer.start_as_current_span("inside", attributes={"session.id": "mine"}):
        reward(0.5, name="tests", label="half", explanation="1 of 2", response_id="chatcmpl-9")
    thread = threading.Thread(target=lambda: tracer.start_span("thread").end())
    thread.start()
    thread.join()
    with ThreadPoolExecutor() as pool:
        pool.submit(lambda: tracer.start_span("pool").end()).result()
tracer.start_span("after").end()
"""


def test_a_task_stamps_what_happens_inside_across_threads(traced_app: App, receiver: Receiver) -> None:
    ran = traced_app.run(TASK_APP)
    assert (ran.stdout, ran.stderr, ran.code) == ("", "", 0)
    root = receiver.by_name("task task-17")
    episode_id = root.attributes["spanloop.episode.id"]
    stamp = {
        "spanloop.task.id": "task-17",
        "spanloop.episode.id": episode_id,
        "session.id": "s-1",
        "gen_ai.agent.name": "scout",
    }
    expected = SeenSpan(
        name="task task-17",
        trace_id=root.trace_id,
        span_id=root.span_id,
        parent_span_id="",
        kind=1,
        status=0,
        status_message="",
        start_ns=root.start_ns,
        attributes=stamp,
        events=[],
        resource=root.resource,
        scope="spanloop.instrumentation",
    )
    assert root == expected
    for name in ("thread", "pool"):
        assert receiver.by_name(name) == replace(
            receiver.by_name(name), trace_id=root.trace_id, parent_span_id=root.span_id, attributes=stamp
        )
    assert receiver.by_name("inside").attributes == {**stamp, "session.id": "mine"}
    assert receiver.by_name("before").attributes == receiver.by_name("after").attributes == {}
    (log,) = receiver.logs
    assert (log.event_name, log.trace_id) == ("gen_ai.evaluation.result", root.trace_id)
    assert log.span_id == receiver.by_name("inside").span_id
    assert log.attributes == {
        **stamp,
        "gen_ai.evaluation.name": "tests",
        "gen_ai.evaluation.score.value": 0.5,
        "gen_ai.evaluation.score.label": "half",
        "gen_ai.evaluation.explanation": "1 of 2",
        "gen_ai.response.id": "chatcmpl-9",
    }


CONCURRENT_APP = """
import asyncio, openai
from spanloop.instrumentation import task

client = openai.AsyncOpenAI()
messages = [{"role": "user", "content": "hi"}]

async def attempt(name):
    async with task(name):
        answer = await client.chat.completions.create(model="tiny", messages=messages)
        stream = await client.chat.completions.create(model="tiny", messages=messages, stream=True)
        streamed = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        return answer.choices[0].message.content, streamed

async def main():
    print(await asyncio.gather(*(attempt(f"t{number}") for number in range(3))))

asyncio.run(main())
"""


def test_concurrent_attempts_of_an_asyncio_app_keep_apart_streams_included(traced_app: App, receiver: Receiver) -> None:
    ran = traced_app.run(CONCURRENT_APP)
    assert (ran.stdout, ran.stderr, ran.code) == (f"{[('hello', 'hello')] * 3}\n", "", 0)
    for number in range(3):
        root = receiver.by_name(f"task t{number}")
        calls_inside = [span for span in receiver.spans if span.parent_span_id == root.span_id]
        assert [span.name for span in calls_inside] == ["openai.chat", "openai.chat"]
        for span in calls_inside:
            assert root.attributes.items() <= span.attributes.items()
            (answer,) = json.loads(span.attributes["gen_ai.output.messages"])
            assert answer["parts"] == [{"content": "hello", "type": "text"}]


def test_a_process_can_be_an_attempt_by_its_environment(traced_app: App, receiver: Receiver) -> None:
    script = MANUAL_SPAN + "from spanloop.instrumentation import reward\nreward(1)\n"
    for _ in range(2):
        traced_app.with_variables(SPANLOOP_TASK_ID="task-4").run(script)
    assert [span.attributes["spanloop.task.id"] for span in receiver.spans] == ["task-4", "task-4"]
    episodes = [span.attributes["spanloop.episode.id"] for span in receiver.spans]
    assert len(set(episodes)) == 2
    assert [log.attributes["spanloop.episode.id"] for log in receiver.logs] == episodes


def test_credentials_in_headers_are_not_recorded_and_the_apps_own_headers_stay_its_own(
    traced_app: App, receiver: Receiver, model: FakeModel
) -> None:
    script = """
import asyncio, openai
client = openai.OpenAI()
headers = {"Authorization": "Bearer sk-very-secret"}
for extra in (headers, None):
    client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hi"}], extra_headers=extra)
print(headers)
asyncio.get_event_loop()
"""
    ran = traced_app.with_variables(PYTHONWARNINGS="ignore::DeprecationWarning").run(script)
    assert (ran.stdout, ran.stderr, ran.code) == ("{'Authorization': 'Bearer sk-very-secret'}\n", "", 0)
    assert [span.attributes.get("gen_ai.headers") for span in receiver.spans] == [None, None]
    assert "sk-very-secret" not in repr(receiver.spans)
    assert ["traceparent" in headers for headers in model.headers] == [True, True]


@pytest.mark.slow
def test_a_message_with_an_inline_image_keeps_its_content_without_the_image(
    traced_app: App, receiver: Receiver
) -> None:
    script = """
import openai
image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
content = [{"type": "text", "text": "what is this?"}, image]
openai.OpenAI().chat.completions.create(model="tiny", messages=[{"role": "user", "content": content}])
"""
    assert traced_app.run(script).stderr == ""
    recorded = receiver.by_name("openai.chat").attributes["gen_ai.input.messages"]
    assert "what is this?" in recorded
    assert "sha256:63c1dd951ffedf6f7fd968ad4efa39b8ed584f162f46e715114ee184f8de9201" in recorded
    assert "AAAA" not in recorded


@pytest.mark.parametrize(
    ("variables", "service"),
    [
        ({}, "user_app"),
        ({"OTEL_SERVICE_NAME": "mine"}, "mine"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "team=a,service.name=theirs"}, "theirs"),
    ],
)
def test_the_service_is_named_by_the_user_else_after_the_script(
    traced_app: App, receiver: Receiver, variables: dict[str, str], service: str
) -> None:
    traced_app.with_variables(**variables).run(MANUAL_SPAN)
    assert receiver.by_name("manual").resource["service.name"] == service


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_TRACES_SAMPLER": "always_off"},
    ],
)
def test_variables_that_switch_tracing_off_do(traced_app: App, receiver: Receiver, variables: dict[str, str]) -> None:
    ran = traced_app.with_variables(**variables).run(MANUAL_SPAN)
    assert (ran.stdout, ran.stderr, ran.code) == ("working\n", "", 0)
    assert receiver.requests == []


def test_a_disabled_sdk_changes_nothing_in_the_process(traced_app: App) -> None:
    script = (
        "import os, sys, threading; print(len(sys.meta_path), threading.active_count(), 'SPANLOOP_QUIET' in os.environ)"
    )
    plain = traced_app.run(script, instrumented=False)
    assert traced_app.with_variables(OTEL_SDK_DISABLED="TRUE").run(script).stdout == plain.stdout


def test_the_users_own_exporter_endpoint_headers_and_content_switch_are_respected(app: App, receiver: Receiver) -> None:
    ran = app.with_variables(
        OTEL_TRACES_EXPORTER="otlp,console",
        OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url + "/",
        OTEL_EXPORTER_OTLP_HEADERS="x-key=abc",
        OTEL_EXPORTER_OTLP_COMPRESSION="deflate",
        TRACELOOP_TRACE_CONTENT="false",
    ).run(ONE_CALL)
    assert ran.code == 0
    assert '"name": "openai.chat"' in ran.stdout
    (request,) = receiver.requests
    headers = {name.lower(): value for name, value in request.headers.items()}
    assert (headers["x-key"], headers["content-encoding"]) == ("abc", "deflate")
    assert "gen_ai.input.messages" not in receiver.by_name("openai.chat").attributes


def without_exporter(app: App, protocol: str) -> App:
    """The first distribution of a name on the path counts: this one has no entry points."""
    shadow = app.directory / "shadow" / f"opentelemetry_exporter_otlp_proto_{protocol}-0.dist-info"
    shadow.mkdir(parents=True)
    (shadow / "METADATA").write_text(f"Name: opentelemetry-exporter-otlp-proto-{protocol}\nVersion: 0\n")
    return app.with_variables(PYTHONPATH=str(shadow.parent))


def test_a_protocol_without_its_exporter_is_one_line_and_the_app_runs(app: App) -> None:
    ran = without_exporter(app, "grpc").with_variables(OTEL_EXPORTER_OTLP_PROTOCOL="grpc").run(MANUAL_SPAN)
    assert (ran.stdout, ran.code) == ("working\n", 0)
    (line,) = ran.stderr_lines
    assert "otlp_proto_grpc" in line


def test_metrics_without_their_exporter_are_one_line_and_cost_no_span(traced_app: App, receiver: Receiver) -> None:
    ran = without_exporter(traced_app, "http").with_variables(OTEL_METRICS_EXPORTER="otlp").run(MANUAL_SPAN)
    assert (ran.stdout, ran.code) == ("working\n", 0)
    (line,) = ran.stderr_lines
    assert "pip install opentelemetry-exporter-otlp-proto-http" in line
    assert receiver.by_name("manual")


def test_metrics_go_where_the_user_says(traced_app: App, receiver: Receiver) -> None:
    script = MANUAL_SPAN + "from opentelemetry import metrics\nmetrics.get_meter('app').create_counter('c').add(1)\n"
    variables = {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
    ran = traced_app.with_variables(**variables).run(script)
    assert (ran.stdout, ran.stderr, ran.code) == ("working\n", "", 0)
    assert sorted(request.path for request in receiver.requests) == ["/v1/metrics", "/v1/traces"]


@since_1_43
def test_a_config_file_that_cannot_be_read_is_one_line_and_the_app_runs(app: App) -> None:
    ran = app.with_variables(OTEL_CONFIG_FILE="absent.yaml").run(MANUAL_SPAN)
    assert (ran.stdout, len(ran.stderr_lines), ran.code) == ("working\n", 1, 0)


def test_the_app_sees_its_own_environment(traced_app: App) -> None:
    script = "import os; print(sorted(name for name in os.environ if name.startswith(('OTEL_', 'TRACELOOP_'))))"
    assert traced_app.run(script).stdout == "[]\n"


@since_1_43
@pytest.mark.parametrize("variables", [{"PYTHONDEVMODE": "1"}, {"PYTHONWARNINGS": "error"}])
def test_a_strict_interpreter_finds_nothing_to_warn_about(
    traced_app: App, receiver: Receiver, variables: dict[str, str]
) -> None:
    ran = traced_app.with_variables(**variables).run(MANUAL_SPAN)
    assert (ran.stdout, ran.stderr, ran.code) == ("working\n", "", 0)
    assert receiver.by_name("manual")


def test_another_packages_configurator_does_not_take_over(traced_app: App, receiver: Receiver) -> None:
    rival = traced_app.directory / "rival"
    (rival / "rival-1.0.dist-info").mkdir(parents=True)
    (rival / "rival-1.0.dist-info" / "METADATA").write_text("Name: rival\nVersion: 1.0\n")
    (rival / "rival-1.0.dist-info" / "entry_points.txt").write_text(
        "[opentelemetry_configurator]\nrival = rival:Rival\n"
    )
    (rival / "rival.py").write_text("def Rival():\n    raise ValueError\n")
    script = MANUAL_SPAN + "import os; print('OTEL_PYTHON_CONFIGURATOR' in os.environ)\n"
    ran = traced_app.with_variables(PYTHONPATH=str(rival)).run(script)
    assert (ran.stdout, ran.stderr, ran.code) == ("working\nFalse\n", "", 0)
    assert receiver.by_name("manual")


HEAVY = (
    "torch",
    "ray",
    "polars",
    "pyarrow",
    "clickhouse_connect",
    "streamlit",
    "pydantic",
    "httpx",
    "openai",
    "requests",
)


def test_a_trivial_app_gets_nothing_heavy_loaded(traced_app: App) -> None:
    ran = traced_app.run(f"{MANUAL_SPAN}\nimport sys; print(sorted(set(sys.modules) & set({HEAVY})))")
    assert ran.stdout == "working\n[]\n"


def test_importing_the_package_loads_nothing_heavy(app: App) -> None:
    script = f"import spanloop.instrumentation, sys; print(sorted(set(sys.modules) & set({HEAVY})))"
    assert app.run(script, instrumented=False).stdout == "[]\n"
