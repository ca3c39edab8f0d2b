"""Real kube-apiservers on loopback, on an etcd of their own, in a temporary folder.

TLS, RBAC, admission and service accounts are the real ones. No controllers and no kubelets run:
what those would do (give a namespace its default account, set a budget's status, see pods end)
tests do.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.kit.certificates import make_certificates, make_client_certificate, make_signing_key
from tests.kit.etcd.server import EtcdServer, reserve_port
from tests.kit.kubernetes.api import Api, Credentials, write_kubeconfig
from tests.kit.kubernetes.wire import Wire
from tests.kit.waits import eventually

_BUILD = Path(__file__).parent / "apiserver" / "build"


class Programs(NamedTuple):
    """What a control plane consists of, as paths."""

    kube_apiserver: str
    etcd: str


def find_programs() -> Programs | None:
    """Find what `KUBEBUILDER_ASSETS` names, or else has been built here; None if it hasn't.

    Raises:
        FileNotFoundError: `KUBEBUILDER_ASSETS` is set, and there is no kube-apiserver in it.
    """
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if folder:
        etcd = Path(folder, "etcd")
        found = Programs(f"{folder}/kube-apiserver", str(etcd) if etcd.exists() else "etcd")
        if not os.access(found.kube_apiserver, os.X_OK):
            raise FileNotFoundError(f"KUBEBUILDER_ASSETS is set: no {found.kube_apiserver}")
        return found
    built = subprocess.run([_BUILD, "--where"], check=True, capture_output=True, text=True)
    found = Programs(built.stdout.rstrip("\n"), "etcd")
    return found if all(map(shutil.which, found)) else None


def how_to_have_one() -> str:
    """Return one line that says how to get a kube-apiserver."""
    build = _BUILD.relative_to(Path(__file__).parents[3])
    return (
        f"no kube-apiserver: build it with {build} (some 5 minutes, once), "
        "or set KUBEBUILDER_ASSETS or LEASECTL_TEST_KUBECONFIG (tests/README.md)"
    )


# Of tokens: who gives them out, and for whom they are.
ISSUER = "https://kubernetes.default.svc"


class ControlPlane:
    """API servers that answer the same, each at an address of its own.

    Args:
        folder: Where everything is kept, logs too.
        programs: What is started.
        size: How many API servers.
        wired: Which of them can be made to hear from etcd late, by their numbers.

    Attributes:
        endpoints: Their addresses.
        etcd: What they keep objects in.
        wires: From those that are wired to etcd.
        certificates: Theirs, and of the CA that signed them and that clients believe.
        signing_key: The file with the key that tokens are signed with.
    """

    def __init__(
        self, folder: Path, programs: Programs, size: int = 1, wired: Collection[int] = ()
    ) -> None:
        self.certificates = make_certificates(folder)
        self.signing_key = make_signing_key(folder / "tokens.key")
        self._administrator = make_client_certificate(
            folder, "administrator", self.certificates.ca, group="system:masters"
        )
        ports = [reserve_port() for _ in range(size)]
        self.endpoints = tuple(f"https://127.0.0.1:{port}" for port in ports)
        self._folder = folder
        self._program = programs.kube_apiserver
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.etcd = EtcdServer(folder, program=programs.etcd)
        self.wires = {number: Wire(self.etcd.endpoints[0]) for number in wired}
        for number in range(size):
            self.start(number)

    def start(self, number: int) -> None:
        """Start a server, for the first time or again."""
        with open(self._folder / f"kube-apiserver{number}.log", "ab") as log:
            self._processes[number] = subprocess.Popen(
                # With whoever started it, so that a run that is killed leaves nothing behind.
                ["setpriv", "--pdeathsig", "KILL", self._program]
                + [f"--{name}={value}" for name, value in self._options(number).items()],
                # A third of its start is the collection of garbage, of which there is little.
                env={**os.environ, "GOGC": "400"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait(self) -> None:
        """Wait until all servers say that they are ready."""
        for number, endpoint in enumerate(self.endpoints):
            api = self.administrator(number)
            eventually(partial(self._is_ready, number, api), what=endpoint)
            api.close()

    def administrator(self, number: int = 0) -> Api:
        """Access with all rights: for what tests set up, never for clients."""
        certificate = Credentials(certificate=self._administrator)
        return Api(self.endpoints[number], self.certificates.ca.file, certificate)

    def administrator_kubeconfig(self, path: Path) -> Path:
        """Write the same for kubectl, and return its path."""
        certificate, key = self._administrator
        return write_kubeconfig(
            path,
            server=self.endpoints[0],
            ca_file=self.certificates.ca.file,
            user={"client-certificate": certificate, "client-key": key},
            namespace="default",
        )

    def pid(self, number: int = 0) -> int:
        """The process of a server."""
        return self._processes[number].pid

    def signal(self, number: int, signum: int) -> None:
        self._processes[number].send_signal(signum)

    def has_ended(self, number: int) -> bool:
        """Whether a server has ended that was sent TERM: its watches hold it for a minute."""
        return self._processes[number].poll() is not None

    def kill(self, number: int) -> None:
        self._processes[number].kill()
        self._processes[number].wait()

    def audit_log(self, number: int) -> Path:
        """Where a server writes what it is asked."""
        return self._folder / f"audit{number}.log"

    def log(self, number: int) -> str:
        """The end of what a server has logged."""
        logged = (self._folder / f"kube-apiserver{number}.log").read_text(errors="replace")
        return "\n".join(logged.splitlines()[-5:])

    def close(self) -> None:
        for number in self._processes:
            self.kill(number)
        for wire in self.wires.values():
            wire.close()
        self.etcd.close()

    def _is_ready(self, number: int, api: Api) -> bool:
        assert not self.has_ended(number), self.log(number)
        return api.is_ready()

    def _options(self, number: int) -> dict[str, str]:
        certificate, key = self.certificates.server
        wire = self.wires.get(number)
        etcd = wire.endpoint if wire else self.etcd.endpoints[0]
        return {
            "etcd-servers": etcd,
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
            **audit_options(self._folder, self.audit_log(number)),
        }


@contextlib.contextmanager
def control_plane(
    programs: Programs, size: int = 1, wired: Collection[int] = ()
) -> Iterator[ControlPlane]:
    """API servers for as long as the block lasts."""
    folder = Path(tempfile.mkdtemp(prefix="kubernetes-"))
    servers = ControlPlane(folder, programs, size, wired)
    try:
        servers.wait()
        yield servers
    finally:
        servers.close()
        shutil.rmtree(folder)


# What the servers ask themselves isn't written down, nor what tests do as administrator.
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:masters"]},
        {"level": "Metadata"},
    ],
}


class Asked(NamedTuple):
    """One request of a client, answered; a watch once it has begun.

    Args:
        verb: As in a Role: get, list, watch, create, update, patch, delete ...
        resource: Such as `leases`; with a subresource `pods/eviction`.
        name: Of the object; empty for a list and a create.
        code: The answer's status.
        user: Who asked; empty where the server doesn't know that.
    """

    verb: str
    resource: str
    name: str
    code: int
    user: str


def audit_options(folder: Path, log: Path) -> dict[str, str]:
    """Return the options of a server that writes an audit log."""
    policy = folder / "audit.json"
    policy.write_text(json.dumps(_POLICY), encoding="utf-8")
    return {"audit-policy-file": str(policy), "audit-log-path": str(log)}


def asked_in(log: Path, namespace: str) -> Iterator[Asked]:
    """What a server was asked of a namespace so far, in the order of answers.

    A request is in it a moment after its answer has come.
    """
    about = f'"namespace":"{namespace}"'
    with open(log, encoding="utf-8") as lines:
        for line in lines:
            # A line that is being written has no end yet.
            if about not in line or not line.endswith("\n"):
                continue
            event = json.loads(line)
            if (event["verb"] == "watch") is (event["stage"] == "ResponseStarted"):
                yield _asked(event)


def _asked(event: dict[str, dict[str, str]]) -> Asked:
    about = event["objectRef"]
    resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
    return Asked(
        str(event["verb"]),
        resource,
        about.get("name", ""),
        int(event["responseStatus"]["code"]),
        event["user"].get("username", ""),
    )
