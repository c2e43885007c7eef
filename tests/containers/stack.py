"""The compose stack of a test: images, start, commands in it, and how long its containers take."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, cast

from ..ports import free_port

ROOT: Final = Path(__file__).parents[2]
IMAGES: Final = ("server", "training", "serving")
_POLL_S: Final = 0.25


def engine_answers() -> bool:
    """Whether `docker` reaches an engine, and compose is installed."""
    try:
        return run(docker(), "version").returncode == 0 and run(*compose(), "version").returncode == 0
    except FileNotFoundError:
        return False


def docker() -> str:
    return os.environ.get("DOCKER", "docker")


def compose() -> list[str]:
    beside = Path(sys.executable).with_name("docker-compose")
    return shlex.split(os.environ.get("COMPOSE", str(beside) if beside.exists() else f"{docker()} compose"))


def run(
    *command: str, timeout_s: float = 900, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **(environment or {})}
    return subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False, timeout=timeout_s
    )


def out(*command: str, timeout_s: float = 900, environment: Mapping[str, str] | None = None) -> str:
    """Return what the command prints; it must succeed."""
    completed = run(*command, timeout_s=timeout_s, environment=environment)
    assert completed.returncode == 0, f"{shlex.join(command)}: {completed.stdout[-4000:]}{completed.stderr[-4000:]}"
    return completed.stdout


class Stack:
    """A project of compose with the profile ``embedded``, on ports of its own."""

    def __init__(self, version: str) -> None:
        self.name = f"spanloop-test-{os.getpid()}"
        self.version = version
        self.started_after_s: dict[str, float] = {}
        self.ports = {name: free_port() for name in ("COLLECTOR", "COLLECTOR_GRPC", "GATEWAY", "DASHBOARD", "MCP")}
        self._environment = {f"SPANLOOP_{name}_PORT": str(port) for name, port in self.ports.items()}
        self._command = [
            *compose(), "--file", str(ROOT / "docker" / "compose.yaml"), "--project-name", self.name,
            "--profile", "embedded",
        ]  # fmt: skip

    def build_missing_images(self) -> None:
        """Build the images unless the engine has them all."""
        if run(docker(), "image", "inspect", *(self.image(name) for name in IMAGES)).returncode:
            out("make", "images", f"DOCKER={docker()}", timeout_s=3600)

    def image(self, name: str) -> str:
        return f"spanloop-{name}:{self.version}"

    def size_bytes(self, name: str) -> int:
        return int(out(docker(), "image", "inspect", "--format", "{{.Size}}", self.image(name)))

    def compose(self, *arguments: str, timeout_s: float = 900) -> str:
        """Return what a command of compose prints."""
        return out(*self._command, *arguments, timeout_s=timeout_s, environment=self._environment)

    def once(self, *arguments: str, timeout_s: float = 900) -> str:
        """Run the service ``cli`` once: ``--entrypoint`` and the like first, then ``cli`` and its arguments."""
        return self.compose("run", "--rm", "-T", *arguments, timeout_s=timeout_s)

    def secret(self, path: str) -> str:
        """Return a file of the operator's secrets."""
        return self.once("--entrypoint", "cat", "cli", f"/run/spanloop/operator/{path}").strip()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def services(self) -> list[str]:
        """Return the running services' names."""
        return self.compose("ps", "--services", "--status", "running").split()

    def state(self, service: str) -> dict[str, Any]:
        """Return the state of a service's container, as the engine has it."""
        container = self.compose("ps", "--all", "--quiet", service).strip()
        inspected = json.loads(out(docker(), "inspect", container))[0]
        return cast("dict[str, Any]", inspected["State"] | {"RestartCount": inspected["RestartCount"]})

    def kill(self, service: str) -> float:
        """End every process of a service's container with SIGKILL; return the seconds until it is healthy again."""
        restarts = int(self.state(service)["RestartCount"])
        killed_s = time.monotonic()
        # The container's first process, which hands signals on, ends when its child has gone.
        run(*self._command, "exec", "-T", service, "sh", "-c", "kill -9 -1", environment=self._environment)
        deadline_s = killed_s + 300
        while True:
            state = self.state(service)
            if state["RestartCount"] > restarts and state.get("Health", {}).get("Status") == "healthy":
                return time.monotonic() - killed_s
            assert time.monotonic() < deadline_s, f"{service} did not come back: {state}\n{self.log(service)}"
            time.sleep(_POLL_S)

    def log(self, service: str) -> str:
        return run(*self._command, "logs", "--no-color", "--tail", "40", service, environment=self._environment).stdout

    def up(self, timeout_s: float = 600) -> dict[str, float]:
        """Start everything; return, for each service, the seconds from its start to its first successful check."""
        self.compose("up", "--detach", timeout_s=timeout_s)
        seconds: dict[str, float] = {}
        deadline_s = time.monotonic() + timeout_s
        services = self.services()
        while len(seconds) < len(services):
            for service in [each for each in services if each not in seconds]:
                state = self.state(service)
                if state["Health"]["Status"] == "healthy":
                    healthy = [_time(check["End"]) for check in state["Health"]["Log"] if check["ExitCode"] == 0]
                    seconds[service] = min(healthy) - _time(state["StartedAt"])
            assert time.monotonic() < deadline_s, f"not healthy: {set(services) - set(seconds)}"
            time.sleep(_POLL_S)
        return seconds

    def down(self) -> None:
        """Remove containers, networks and volumes."""
        self.compose("--profile", "tools", "down", "--volumes", "--timeout", "20", "--remove-orphans")


def _time(text: str) -> float:
    """Return seconds since the epoch of a time with nanoseconds."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text)).timestamp()
