"""A real etcd on loopback, of one member or more, in a folder of its own."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.kit.certificates import Certificates
from tests.kit.support import is_stopped
from tests.kit.waits import PATIENCE_SECONDS, eventually

_numbers = count()
_reserved: list[socket.socket] = []  # the names of ports


class Security(NamedTuple):
    """What a cluster asks of its clients, and shows to them.

    Args:
        certificates: Of the members; with none it goes without TLS.
        asks_clients: Whether clients have to show a certificate of the same CA.
        token_seconds: How long a token for a user is good, since it was last used at a member.
    """

    certificates: Certificates | None = None
    asks_clients: bool = False
    token_seconds: int = 300

    def options(self) -> dict[str, str]:
        """Return the options of etcd for tokens and TLS."""
        options = {"auth-token-ttl": str(self.token_seconds)}
        if self.certificates:
            options["cert-file"], options["key-file"] = self.certificates.server
            if self.asks_clients:
                options["trusted-ca-file"] = self.certificates.ca.file
        return options

    def verify(self) -> ssl.SSLContext | bool:
        """What httpx needs to be let in."""
        if not self.certificates:
            return False
        context = ssl.create_default_context(cafile=self.certificates.ca.file)
        context.load_cert_chain(*self.certificates.client)
        return context


OPEN = Security()


class Leadership(NamedTuple):
    """A leader and its term, which grows with each change."""

    term: int
    member: int


class EtcdServer:
    """One cluster.

    Args:
        folder: Where the members keep their data.
        size: How many members.
        security: What it asks of clients.
        program: The etcd to start.

    Attributes:
        endpoints: Their addresses for clients.
        verify: What httpx needs to talk to them.
    """

    def __init__(
        self, folder: Path, size: int = 1, security: Security = OPEN, program: str = "etcd"
    ) -> None:
        self.verify = security.verify()
        self._options = security.options()
        scheme = "https" if security.certificates else "http"
        ports = [reserve_port() for _ in range(2 * size)]
        self.endpoints = tuple(f"{scheme}://127.0.0.1:{port}" for port in ports[:size])
        self._peers = tuple(f"http://127.0.0.1:{port}" for port in ports[size:])
        self._folder = folder
        self._program = program
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for member in range(size):
            self.start(member)

    def start(self, member: int) -> None:
        """Start a member, for the first time or again."""
        cluster = ",".join(f"m{n}={peer}" for n, peer in enumerate(self._peers))
        options = {
            "name": f"m{member}",
            "data-dir": str(self._folder / f"m{member}"),
            "listen-client-urls": self.endpoints[member],
            "advertise-client-urls": self.endpoints[member],
            "listen-peer-urls": self._peers[member],
            "initial-advertise-peer-urls": self._peers[member],
            "initial-cluster": cluster,
            "initial-cluster-state": "new",
            "logger": "zap",
            "bcrypt-cost": "4",  # the least; else each password is a tenth of a second
            **self._options,
        }
        with open(self._folder / f"m{member}.log", "ab") as log:
            self._processes[member] = subprocess.Popen(
                # With whoever started it, so that a run that is killed leaves nothing behind.
                ["setpriv", "--pdeathsig", "KILL", self._program, "--unsafe-no-fsync"]
                + [f"--{name}={value}" for name, value in options.items()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait(self) -> None:
        """Wait until all members answer, and agree on a leader."""
        for member, endpoint in enumerate(self.endpoints):
            eventually(partial(self._is_ready, member), what=f"etcd at {endpoint}")

    def _is_ready(self, member: int) -> bool:
        code = self._processes[member].poll()
        if code is not None:
            log = (self._folder / f"m{member}.log").read_text(errors="replace")
            raise RuntimeError(f"{self._program} ended with {code}: {log[-2000:]}")
        with contextlib.suppress(httpx.HTTPError):
            # Health is answered by those who can write: not without a leader.
            url = f"{self.endpoints[member]}/health"
            return "true" in httpx.get(url, timeout=2, verify=self.verify).text
        return False

    def leader(self) -> int:
        """The number of the member that leads."""
        leadership = self.leadership()
        assert leadership is not None
        return leadership.member

    def leadership(self) -> Leadership | None:
        """The leader that the members who answer at once know; None if there is none."""
        found: list[Leadership] = []
        for member, endpoint in enumerate(self.endpoints):
            with contextlib.suppress(httpx.HTTPError):
                url = f"{endpoint}/v3/maintenance/status"
                said = httpx.post(
                    url, json={}, timeout=1, verify=self.verify, trust_env=False
                ).json()
                if said["header"]["member_id"] == said.get("leader"):
                    found.append(Leadership(int(said["raftTerm"]), member))
        return max(found, default=None)

    def alarm(self, *, on: bool) -> None:
        """Set or clear the alarm of the first member that its quota is reached."""
        url = f"{self.endpoints[0]}/v3/maintenance"
        post = partial(httpx.post, timeout=PATIENCE_SECONDS, verify=self.verify, trust_env=False)
        member = post(f"{url}/status", json={}).json()["header"]["member_id"]
        action = {"memberID": member, "alarm": "NOSPACE", "action": "DEACTIVATE"}
        if on:
            action["action"] = "ACTIVATE"
        post(f"{url}/alarm", json=action).raise_for_status()

    def compact(self) -> None:
        """Compact everything before now: requests for an earlier revision are refused."""
        url = f"{self.endpoints[0]}/v3/kv"
        post = partial(httpx.post, timeout=PATIENCE_SECONDS, verify=self.verify, trust_env=False)
        revision = post(f"{url}/range", json={"key": "AA=="}).json()["header"]["revision"]
        body = {"revision": revision, "physical": True}
        answer = post(f"{url}/compaction", json=body)
        if "has been compacted" not in answer.text:  # an API server compacts by itself
            answer.raise_for_status()

    def signal(self, member: int, signum: int) -> None:
        """Signal a member; one that is to stop has stopped afterwards."""
        process = self._processes[member]
        process.send_signal(signum)
        if signum == signal.SIGSTOP:
            eventually(lambda: is_stopped(process.pid), what="the member is stopped")

    def kill(self, member: int) -> None:
        self._processes[member].kill()
        self._processes[member].wait()

    def keep_copy(self) -> Path:
        """Stop the one member, copy its data, and start it again; returns where the copy is."""
        copy = self._folder / f"copy-{next(_numbers)}"
        self.kill(0)
        shutil.copytree(self._folder / "m0", copy)
        self.start(0)
        self.wait()
        return copy

    def restore(self, copy: Path) -> None:
        """Restart the one member from an older copy of its data."""
        self.kill(0)
        shutil.rmtree(self._folder / "m0")
        shutil.copytree(copy, self._folder / "m0")
        self.start(0)
        self.wait()

    def close(self) -> None:
        for member in self._processes:
            self.kill(member)


@contextlib.contextmanager
def etcd_server(size: int = 1, security: Security = OPEN) -> Iterator[EtcdServer]:
    """A cluster for as long as the block lasts."""
    folder = Path(tempfile.mkdtemp(prefix="etcd-"))
    server = EtcdServer(folder, size, security)
    try:
        server.wait()
        yield server
    finally:
        for member in range(size):
            with contextlib.suppress(ProcessLookupError):
                server.signal(member, signal.SIGCONT)
        server.close()
        shutil.rmtree(folder)


def reserve_port() -> int:
    """A port for a server, of this process as long as it lives.

    The kernel gives it to nobody by itself, not even while its server is down; and a name that only
    one process has keeps it from the tests of another run.
    """
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(first // 2, first)
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0leasectl-test-port-{port}")
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", port))
        except OSError:
            name.close()
        else:
            _reserved.append(name)
            return port
