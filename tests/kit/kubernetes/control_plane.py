"""Real kube-apiservers on loopback, on an etcd of their own, in a temporary folder.

TLS, RBAC, admission and service accounts are the real ones. No controllers and no kubelets run:
what those would do (give a namespace its default account, set a budget's status, see pods end)
tests do.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.kit.certificates import make_certificates, make_client_certificate, make_signing_key
from tests.kit.etcd.server import EtcdServer, reserve_port
from tests.kit.kubernetes.api import Api, Credentials
from tests.kit.kubernetes.assets import Programs
from tests.kit.support import eventually

# Of tokens: who gives them out, and for whom they are.
ISSUER = "https://kubernetes.default.svc"


class ControlPlane:
    """API servers that answer the same, each at an address of its own.

    Args:
        folder: Where everything is kept, logs too.
        programs: What is started.
        size: How many API servers.

    Attributes:
        endpoints: Their addresses.
        etcd: What they keep objects in.
        certificates: Theirs, and of the CA that signed them and that clients believe.
        signing_key: The file with the key that tokens are signed with.
    """

    def __init__(self, folder: Path, programs: Programs, size: int = 1) -> None:
        self.certificates = make_certificates(folder)
        self.signing_key = make_signing_key(folder / "tokens.key")
        self._administrator = make_client_certificate(
            folder, "administrator", self.certificates.ca, group="system:masters"
        )
        with contextlib.ExitStack() as reserved:
            ports = [reserved.enter_context(reserve_port()).getsockname()[1] for _ in range(size)]
        self.endpoints = tuple(f"https://127.0.0.1:{port}" for port in ports)
        self._folder = folder
        self._program = programs.kube_apiserver
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.etcd = EtcdServer(folder, program=programs.etcd)
        for number in range(size):
            self.start(number)

    def start(self, number: int) -> None:
        """Start a server, for the first time or again."""
        with open(self._folder / f"kube-apiserver{number}.log", "ab") as log:
            self._processes[number] = subprocess.Popen(
                # With whoever started it, so that a run that is killed leaves nothing behind.
                ["setpriv", "--pdeathsig", "KILL", self._program]
                + [f"--{name}={value}" for name, value in self._options(number).items()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait(self) -> None:
        """Wait until all servers say that they are ready."""
        for number, endpoint in enumerate(self.endpoints):
            api = self.administrator(number)
            eventually(api.is_ready, timeout=60, what=f"{endpoint} is ready: {self.log(number)}")
            api.close()

    def administrator(self, number: int = 0) -> Api:
        """Access as somebody who may do everything: for what tests set up, never for clients."""
        certificate = Credentials(certificate=self._administrator)
        return Api(self.endpoints[number], self.certificates.ca.file, certificate)

    def signal(self, number: int, signum: int) -> None:
        self._processes[number].send_signal(signum)

    def kill(self, number: int) -> None:
        self._processes[number].kill()
        self._processes[number].wait()

    def log(self, number: int) -> str:
        """The end of what a server has logged."""
        logged = (self._folder / f"kube-apiserver{number}.log").read_text(errors="replace")
        return "\n".join(logged.splitlines()[-5:])

    def close(self) -> None:
        for number in self._processes:
            self.kill(number)
        self.etcd.close()

    def _options(self, number: int) -> dict[str, str]:
        certificate, key = self.certificates.server
        return {
            "etcd-servers": self.etcd.endpoints[0],
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "secure-port": self.endpoints[number].rpartition(":")[2],
            "tls-cert-file": certificate,
            "tls-private-key-file": key,
            # It makes itself a certificate for this, and keeps it here.
            "cert-dir": str(self._folder),
            "client-ca-file": self.certificates.ca.file,
            "authorization-mode": "RBAC",
            "service-account-issuer": ISSUER,
            "service-account-signing-key-file": self.signing_key,
            "service-account-key-file": self.signing_key,
            "service-cluster-ip-range": "10.0.0.0/24",
            # There is no service to send anybody to them.
            "endpoint-reconciler-type": "none",
        }


@contextlib.contextmanager
def control_plane(programs: Programs, size: int = 1) -> Iterator[ControlPlane]:
    """API servers for as long as the block lasts."""
    folder = Path(tempfile.mkdtemp(prefix="kubernetes-"))
    servers = ControlPlane(folder, programs, size)
    try:
        servers.wait()
        yield servers
    finally:
        servers.close()
        shutil.rmtree(folder)
