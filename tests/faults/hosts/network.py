"""Hosts on one machine: Linux namespaces that reach each other by name and address alone.

A host has a network interface, a host name, processes, `/tmp`, `/dev/shm` and a folder `/srv/spanloop` of its own; it
shares no file with another one but `/srv/shared`, which stands for a network file system, and the installed programs.
All that runs on a host ends with it.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, Self

HOME: Final = Path("/srv/spanloop")
"""The host's folder, as its processes see it."""
SHARED: Final = Path("/srv/shared")
"""The network file system of the hosts that mount it."""
_SUBNET: Final = "10.77.0"
_CLONE_NEWNET: Final = 0x40000000
_START_TIMEOUT_S: Final = 20.0
_UNSHARE: Final = (
    "setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child",
    "--mount-proc", "--propagation", "private",
)  # fmt: skip
_CHECKOUT: Final = Path(__file__).parents[3]
# The first process of a host adopts what a killed process leaves, and reaps it. A checkout that the mounts hide is
# bound again.
_FIRST_PROCESS: Final = """
set -e
cd {checkout}
hostname {name}
ip link set lo up
mount --bind {folder}/hosts /etc/hosts
mount -t tmpfs tmpfs /srv
mkdir {home} {shared}
mount --bind {folder}/{name}/srv {home}
{mount_shared}
mount --bind {folder}/{name}/tmp /tmp
mount -t tmpfs tmpfs /dev/shm
[ -e {checkout}/pyproject.toml ] || {{ mkdir --parents {checkout}; mount --no-canonicalize --bind . {checkout}; }}
touch /tmp/.ready
while :; do sleep 3600 & wait $!; done
"""


def missing() -> str:
    """Return why there can be no hosts here, empty if there can."""
    programs = [name for name in ("ip", "unshare", "nsenter", "setpriv", "bash") if shutil.which(name) is None]
    if programs:
        return f"needs {', '.join(programs)} (packages iproute2 and util-linux)"
    if os.geteuid() != 0:
        return "needs root, to make network namespaces"
    made = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False)
    return "" if made.returncode == 0 else f"may not make namespaces: {made.stderr.decode().strip()}"


class Host:
    """One host; `Network` makes it."""

    def __init__(self, name: str, address: str, folder: Path) -> None:
        self.name = name
        self.address = address
        self.srv = folder / name / "srv"
        """Its `HOME`, as the test's process sees it."""
        self.tmp = folder / name / "tmp"
        for made in (self.srv, self.tmp):
            made.mkdir(parents=True)
        self.tmp.chmod(0o1777)
        self.environment: dict[str, str] = {}
        """Variables of all its processes."""
        self._unshared: subprocess.Popen[bytes] | None = None
        self._first_pid = 0

    def start(self, script: str) -> None:
        """Start the host's first process, which runs ``script``."""
        self._unshared = subprocess.Popen([*_UNSHARE, "bash", "-c", script], stderr=subprocess.PIPE)
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while not (self.tmp / ".ready").exists():
            if self._unshared.poll() is not None or time.monotonic() > deadline_s:
                assert self._unshared.stderr is not None
                self._unshared.kill()
                raise AssertionError(f"host {self.name} did not start: {self._unshared.stderr.read().decode()}")
            time.sleep(0.01)
        self._first_pid = child_of(self._unshared.pid)

    @property
    def network_namespace(self) -> Path:
        return Path(f"/proc/{self._first_pid}/ns/net")

    @property
    def first_pid(self) -> int:
        """The id of its first process, as the test's process sees it."""
        return self._first_pid

    def popen(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        output: IO[bytes] | int | None = None,
    ) -> "subprocess.Popen[bytes]":
        """Start a program on the host, in `HOME`; `child_of` is the process itself."""
        enter = ["nsenter", "--target", str(self._first_pid), "--net", "--mount", "--uts", "--pid", f"--wdns={HOME}"]
        return subprocess.Popen(
            [*enter, "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={"PATH": os.environ["PATH"], "HOME": str(HOME), "LANG": "C.UTF-8", **self.environment}
            | dict(environment or {}),
        )

    def run(
        self, command: Sequence[str], *, environment: Mapping[str, str] | None = None, timeout_s: float = 300
    ) -> str:
        """Return what a program prints; it must succeed."""
        process = self.popen(command, environment=environment, output=subprocess.PIPE)
        try:
            printed = process.communicate(timeout=timeout_s)[0].decode()
        except subprocess.TimeoutExpired:
            kill_child(process)
            printed = process.communicate()[0].decode()
            raise AssertionError(f"{self.name}: {command} took more than {timeout_s:.0f} s:\n{printed}") from None
        assert process.returncode == 0, f"{self.name}: {command} ended with {process.returncode}:\n{printed[-6000:]}"
        return printed

    def stop(self) -> None:
        """End the host with all that runs on it."""
        if self._unshared is not None:
            self._unshared.kill()
            self._unshared.wait()
            assert self._unshared.stderr is not None
            self._unshared.stderr.close()


class Network:
    """Hosts that a switch joins. A context manager.

    Args:
        folder: Of what the hosts store.
        names: The hosts' names.
        sharing: Those that mount the network file system.
    """

    def __init__(self, folder: Path, names: Sequence[str], sharing: Sequence[str] = ()) -> None:
        self._folder = folder
        self._sharing = frozenset(sharing)
        self.shared = folder / "shared"
        self.shared.mkdir(parents=True)
        self.hosts = {name: Host(name, f"{_SUBNET}.{number}", folder) for number, name in enumerate(names, 1)}
        self._switch = Host("switch", "", folder)

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def __enter__(self) -> Self:
        lines = ["127.0.0.1 localhost", *(f"{host.address} {host.name}" for host in self.hosts.values())]
        (self._folder / "hosts").write_text("\n".join([*lines, ""]))
        try:
            for host in (self._switch, *self.hosts.values()):
                mount = f"mount --bind {self.shared} {SHARED}" if host.name in self._sharing else ""
                values = {"name": host.name, "folder": self._folder, "home": HOME, "shared": SHARED}
                host.start(_FIRST_PROCESS.format(**values, checkout=_CHECKOUT, mount_shared=mount))
            self._connect()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for host in (*self.hosts.values(), self._switch):
            host.stop()

    def _connect(self) -> None:
        lines = ["ip link add bridge type bridge", "ip link set bridge up"]
        for number, host in enumerate(self.hosts.values()):
            lines += [
                f"ip link add port{number} type veth peer name eth0 netns {host.first_pid}",
                f"ip link set port{number} master bridge up",
            ]
        _in_network(self._switch, lines)
        for host in self.hosts.values():
            _in_network(host, [f"ip address add {host.address}/24 dev eth0", "ip link set eth0 up"])

    @contextmanager
    def entered(self, name: str) -> Generator[None]:
        """Let this thread, and threads that it starts, use the network of a host."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        inside = os.open(self.hosts[name].network_namespace, os.O_RDONLY)
        try:
            _set_namespace(inside)
            yield
        finally:
            _set_namespace(before)
            os.close(inside)
            os.close(before)


def _in_network(host: Host, lines: Sequence[str]) -> None:
    """Run commands of ``ip`` in a host's network, with the ids of processes that the test's process sees."""
    script = "set -e\n" + "\n".join(lines)
    enter = ["nsenter", f"--net={host.network_namespace}", "bash", "-c", script]
    done = subprocess.run(enter, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _set_namespace(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def child_of(pid: int) -> int:
    """Return the process that ``nsenter`` or ``unshare`` has started; 0 if it has ended."""
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            return 0
        if children:
            return int(children[0])
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return 0
        time.sleep(0.005)
    raise AssertionError(f"process {pid} has started none")


def kill_child(process: "subprocess.Popen[bytes]") -> None:
    """Send kill -9 to the process on the host that ``process`` waits for."""
    if process.poll() is None and (pid := child_of(process.pid)):
        os.kill(pid, signal.SIGKILL)
