"""The engine: a vLLM server, either a supervised child process or an external server.

Invariant: after `Engine.start` returns, the server responds to chat requests with the given weights; after
`Engine.stop` returns, none of a child's processes is left.
"""

import asyncio
import contextlib
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Final, Protocol

from spanloop.foundation.errors import ServiceError
from spanloop.foundation.settings.roles import EngineSettings

from ..client.engine_client import EngineClient
from .facts import EngineFacts
from .served_adapter import ServedAdapter
from .serving_environment import SERVED_NAME, LaunchCommand, find_serving_environment, launch_command, lora_rank
from .unix_socket import EngineSocket
from .vllm_api import VllmApi

_log: Final = logging.getLogger(__name__)
_POLL_S: Final = 0.2
_PROGRESS_EVERY_S: Final = 5.0
_TAIL_BYTES: Final = 64 * 1024
_TAIL_LINES: Final = 15
_SEARCHED_LINES: Final = 200
_ERROR: Final = re.compile(r"\bERROR\b|Error: |died")
_KILL_MARGIN_S: Final = 2.0
_CHECK_EVERY_S: Final = 10.0
_SILENT_CHECKS: Final = 6
"""A child that answers none of them is started again; a busy one answers late, but answers."""
_CHECK_UPSTREAM_EVERY_S: Final = 1.0


class Engine(Protocol):
    """The operations that `EngineLifecycle` needs."""

    @property
    def api(self) -> VllmApi:
        """The server's API; only valid after a start."""
        ...

    @property
    def served_name(self) -> str:
        """The server's name for its model; only valid after a start."""
        ...

    @property
    def facts(self) -> EngineFacts:
        """What requests depend on; only valid after a start."""
        ...

    @property
    def pid(self) -> int | None:
        """Process id of a child; None for an external server and while stopped."""
        ...

    @property
    def lora_rank(self) -> int:
        """Largest rank of adapters that it serves; 0 for one that the gateway gives none."""
        ...

    @property
    def can_restart(self) -> bool:
        """Whether `start` may be called with other weights."""
        ...

    async def start(self, model_path: str, adapter: ServedAdapter | None = None) -> None:
        """Serve a model folder, and a LoRA adapter beside it.

        Raises:
            ServiceError: The engine did not start; the message says why.
            ConfigurationError: vLLM is not installed.
        """
        ...

    async def swap_adapter(self, model_path: str, adapter: ServedAdapter) -> bool:
        """Replace the adapter of the running engine, when no request runs; return False if it needs a new start.

        Raises:
            ServiceError: The engine did not load it; it may serve neither.
        """
        ...

    async def stop(self) -> None:
        """Stop the engine, if it runs."""
        ...

    async def release_memory(self) -> None:
        """Free the memory of weights and key/value cache; the engine answers nothing until the next `start`."""
        ...

    async def wait_until_down(self) -> str:
        """Wait until the running engine ends on its own; return the reason as a sentence."""
        ...


class ChildEngine:
    """vLLM as a child process under the process reaper.

    Args:
        settings: The settings of the vLLM process.
        client: The HTTP client for its API.
        log_path: The file for its output; the previous run's output is kept beside it with the suffix ``.1``.
        gpus: Those that it may use; empty for all.
    """

    can_restart = True
    served_name = SERVED_NAME

    def __init__(
        self, settings: EngineSettings, client: EngineClient, log_path: Path, gpus: Sequence[str] = ()
    ) -> None:
        self._gpus = gpus
        self._settings = settings
        self._client = client
        self._log_path = log_path
        self._process: asyncio.subprocess.Process | None = None
        self._socket: EngineSocket | None = None
        self._api: VllmApi | None = None
        self._model_path = ""
        self._adapter: ServedAdapter | None = None
        self.lora_rank = 0
        """Largest rank of adapters that vLLM serves, as it was started last; 0 for none."""
        self._can_sleep = False
        self._is_asleep = False
        self._is_ready = False
        self.facts = EngineFacts()

    @property
    def api(self) -> VllmApi:
        """The server's API."""
        if self._api is None:
            raise ServiceError("The engine (vLLM) does not run.")
        return self._api

    @property
    def pid(self) -> int | None:
        """Process id of the process reaper."""
        return None if self._process is None else self._process.pid

    async def start(self, model_path: str, adapter: ServedAdapter | None = None) -> None:
        """Wake the sleeping vLLM of this folder and adapter, or start vLLM; wait for its first response."""
        is_loaded = (model_path, adapter) == (self._model_path, self._adapter)
        if self._is_asleep and is_loaded and await self._wake():
            return
        await self.stop()
        serving = find_serving_environment()
        self._model_path, self._adapter, self._can_sleep = model_path, adapter, not serving.is_cpu
        self.lora_rank = lora_rank(self._settings, adapter)
        endpoint = self._socket = EngineSocket()
        _log.info("starting %s %s for %s; output: %s", serving.package, serving.version, model_path, self._log_path)
        started_at = time.monotonic()
        try:
            command = launch_command(serving, model_path, endpoint.path, self._settings, adapter, gpus=self._gpus)
            self._process = await self._spawn(command)
        except OSError as error:
            self._remove_socket()
            raise ServiceError(f"vLLM cannot be started: {error}.", next_step="run `spanloop doctor`") from error
        self._api = VllmApi(endpoint.url, self._client)
        try:
            await self._wait_healthy(self._api, started_at)
            await self._api.warm_up(self._requested_name)
            self.facts = await EngineFacts.of_child(self._api, command.command, model_path, self._requested_name)
        except BaseException:
            await self.stop()
            raise
        self._is_ready = True
        _log.info("the engine is ready after %.1f s", time.monotonic() - started_at)

    @property
    def serves_adapters_of(self) -> str:
        """The folder whose adapters the running vLLM serves; empty while it serves none."""
        is_up = self._api is not None and not self._is_asleep and self._is_ready
        return self._model_path if is_up and self.lora_rank else ""

    @property
    def _requested_name(self) -> str:
        """The model that requests name: the adapter, if there is one."""
        return SERVED_NAME if self._adapter is None else self._adapter.name

    async def swap_adapter(self, model_path: str, adapter: ServedAdapter) -> bool:
        """Load ``adapter`` and unload the one before it, if vLLM runs with weights and a rank that it fits."""
        previous = self._adapter
        if previous is None or model_path != self._model_path or adapter.max_rank > self.lora_rank:
            return False
        await self.api.load_adapter(adapter)
        self._adapter = adapter
        await self.api.unload_adapter(previous.name)
        await self.api.warm_up(adapter.name)
        return True

    async def _spawn(self, command: LaunchCommand) -> asyncio.subprocess.Process:
        self._log_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._log_path.exists():
            self._log_path.replace(self._log_path.with_suffix(".log.1"))
        with self._log_path.open("wb") as output:
            return await asyncio.create_subprocess_exec(
                # Run as a file, since spanloop may not be importable in the engine's environment.
                sys.executable, "-I", str(Path(__file__).with_name("process_reaper.py")),
                str(os.getpid()), str(self._settings.stop_timeout_s), *command.command,
                env=dict(command.environment),
                stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip

    async def stop(self) -> None:
        """Stop vLLM with SIGTERM, then SIGKILL after the stop timeout."""
        process, self._process, self._api, self._is_asleep = self._process, None, None, False
        self._is_ready = False
        try:
            if process is not None and process.returncode is None:
                await self._stop_process(process)
        finally:
            self._remove_socket()

    async def _stop_process(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self._settings.stop_timeout_s + _KILL_MARGIN_S):
                await process.wait()
        except TimeoutError:
            # The kernel sends the parent-death signal to vLLM's server.
            process.kill()
            await process.wait()

    def _remove_socket(self) -> None:
        if self._socket is not None:
            self._socket.remove()
            self._socket = None

    async def release_memory(self) -> None:
        """Put vLLM to sleep on a GPU: its weights move to the host's memory. Stop it on a CPU, which is that memory."""
        if self._can_sleep and self._process is not None and self._process.returncode is None:
            try:
                await self.api.sleep()
            except ServiceError as error:
                _log.warning("the engine does not sleep, stopping it: %s", error.what)
            else:
                self._is_asleep = True
                return
        await self.stop()

    async def _wake(self) -> bool:
        """Wake vLLM; return whether it answers again."""
        self._is_asleep = False
        started_at = time.monotonic()
        try:
            await self.api.wake_up(self._requested_name)
        except ServiceError as error:
            _log.warning("the engine does not wake up, starting it again: %s", error.what)
            return False
        _log.info("the engine is awake after %.1f s", time.monotonic() - started_at)
        return True

    async def wait_until_down(self) -> str:
        """Wait for the end of the process reaper, which ends with vLLM, or until vLLM answers no health check."""
        if self._process is None:
            return "the engine (vLLM) does not run"
        end, silence = asyncio.ensure_future(self._process.wait()), asyncio.ensure_future(self._until_silent())
        try:
            await asyncio.wait((end, silence), return_when=asyncio.FIRST_COMPLETED)
        finally:
            end.cancel()
            silence.cancel()
        status = self._process.returncode
        if status is None:
            return f"the engine (vLLM) answered no health check for {_SILENT_CHECKS * _CHECK_EVERY_S:.0f} s"
        if status > 128:
            # The signal is the cause, whatever the log ends with.
            return f"the engine (vLLM) was killed by signal {status - 128}"
        return f"the engine (vLLM) ended with exit status {status}: {self._last_error_line()}"

    async def _until_silent(self) -> None:
        await _until_silent(self.api, _CHECK_EVERY_S, _SILENT_CHECKS)

    async def _wait_healthy(self, api: VllmApi, started_at: float) -> None:
        process = self._process
        next_progress_s = _PROGRESS_EVERY_S
        while not await api.is_healthy():
            elapsed_s = time.monotonic() - started_at
            if process is None or process.returncode is not None:
                status = None if process is None else process.returncode
                raise self._start_error(f"vLLM ended with status {status} after {elapsed_s:.0f} s, before it was ready")
            if elapsed_s > self._settings.start_timeout_s:
                raise self._start_error(f"vLLM was not ready within {self._settings.start_timeout_s:.0f} s")
            if elapsed_s > next_progress_s:
                next_progress_s += _PROGRESS_EVERY_S
                _log.info("the engine is starting, %.0f s: %s", elapsed_s, self._last_line())
            await asyncio.sleep(_POLL_S)

    def _start_error(self, what: str) -> ServiceError:
        lines = "\n".join(f"    {line}" for line in self._tail())
        return ServiceError(
            f"{what}. The last lines of {self._log_path}:\n{lines}",
            next_step="run `spanloop doctor`; read the log above",
        )

    def _last_error_line(self) -> str:
        errors = [line for line in self._tail(_SEARCHED_LINES) if _ERROR.search(line)]
        return errors[-1] if errors else "its log contains no error"

    def _last_line(self) -> str:
        tail = self._tail()
        return tail[-1] if tail else "its log is empty"

    def _tail(self, lines: int = _TAIL_LINES) -> list[str]:
        try:
            with self._log_path.open("rb") as file:
                file.seek(max(0, self._log_path.stat().st_size - _TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return []
        return [line.rstrip() for line in text.splitlines() if line.strip()][-lines:]


class ExternalEngine:
    """A server that the gateway did not start, vLLM or another of OpenAI's API: it is monitored, never stopped.

    Args:
        url: The server's URL; ``#MODEL`` at its end names one of its models, else it is the first.
        client: The HTTP client for its API.
    """

    can_restart = False
    pid = None
    lora_rank = 0

    def __init__(self, url: str, client: EngineClient) -> None:
        base_url, _, model = url.partition("#")
        self.api = VllmApi(base_url, client, model)
        self.served_name = ""
        self.facts = EngineFacts()

    async def start(self, model_path: str, adapter: ServedAdapter | None = None) -> None:  # noqa: ARG002 - it serves its own model
        """Read the name of the model it serves, and its settings."""
        if not await self.api.is_healthy():
            status = self.api.health_status
            if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
                raise ServiceError(
                    f"The upstream {self.api.base_url} refuses the gateway's key (status {status}).",
                    next_step="put the upstream's key into a file, and name that in upstream_key_file",
                )
            raise ServiceError(
                f"The upstream {self.api.base_url} does not respond.",
                next_step="start it, or omit --upstream so that the gateway starts vLLM",
            )
        self.served_name = await self.api.served_model()
        self.facts = await EngineFacts.of_upstream(self.api, self.served_name)

    async def swap_adapter(self, model_path: str, adapter: ServedAdapter) -> bool:  # noqa: ARG002
        """Return False: the server's adapters are not the gateway's."""
        return False

    async def stop(self) -> None:
        """Do nothing, since the server is external."""

    async def release_memory(self) -> None:
        """Do nothing, since the server is external."""

    async def wait_until_down(self) -> str:
        """Poll the server's health until two consecutive checks fail."""
        every_s = _CHECK_UPSTREAM_EVERY_S if self.api.has_health_route else _CHECK_EVERY_S
        await _until_silent(self.api, every_s, 2)
        return f"the upstream {self.api.base_url} stopped responding"


async def _until_silent(api: VllmApi, every_s: float, checks: int) -> None:
    """Wait until consecutive health checks have failed."""
    failed_checks = 0
    while failed_checks < checks:
        await asyncio.sleep(every_s)
        failed_checks = 0 if await api.is_healthy() else failed_checks + 1
