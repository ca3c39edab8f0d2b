"""Fixtures that tests of several parts share."""

from __future__ import annotations

import os
import re
import secrets
import signal
import tempfile
import zlib
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from leasectl.state import keeper_process
from leasectl.system import signals
from tests.kit.boskos.any_boskos import any_boskos as any_boskos
from tests.kit.boskos.any_boskos import shared_boskos as shared_boskos
from tests.kit.boskos.process import boskos as boskos
from tests.kit.etcd.server import EtcdServer, etcd_server
from tests.kit.faults.process import fault_proxy as fault_proxy
from tests.kit.kubernetes.namespaces import Namespace, new_namespace
from tests.kit.kubernetes.servers import Kubernetes, kubernetes_servers
from tests.kit.relay import Relay, relay
from tests.kit.reporting import ReportOnce
from tests.kit.support import Cli, CliOfAnotherUser, ManualClock

# The fixtures that start one, each for a whole session.
SERVERS = {"etcd", "kubernetes", "shared_boskos"}


def pytest_configure(config: pytest.Config) -> None:
    """Let no signal be ignored that commands are sent: nohup and a shell's "&" leave some so."""
    config.pluginmanager.register(ReportOnce())
    for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(signum) == signal.SIG_IGN:
            default = signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL
            signal.signal(signum, default)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what scripts/test doesn't do on every Python: what runs commands, or asks a server."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & {"cli", "other_user"}:
            item.add_marker(pytest.mark.commands)
        if zlib.crc32(item.nodeid.encode()) % 3 == 0:
            item.add_marker(pytest.mark.third)
        if fixtures & SERVERS:
            item.add_marker(pytest.mark.once)


@pytest.fixture(autouse=True)
def no_signal_stays_heeded() -> Iterator[None]:
    """Nor blocked, or the processes that later tests start would never hear of it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    assert signal.pthread_sigmask(signal.SIG_SETMASK, before) == before
    assert signals.current() is None


_numbers = count()


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """As pytest's own, which looks through all that there are for the number of the next."""
    name = re.sub(r"\W", "_", request.node.name, flags=re.ASCII)[:30]
    return tmp_path_factory.mktemp(f"{name}{next(_numbers)}", numbered=False)


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdServer]:
    """One member, for all tests that take a prefix of their own."""
    with etcd_server() as server:
        yield server


@pytest.fixture
def prefix() -> str:
    """A key of etcd below which nothing is yet."""
    return f"/test/{secrets.token_hex(8)}"


@pytest.fixture
def between(etcd: EtcdServer) -> Iterator[Relay]:
    """What a client can be made to talk to instead of the member itself."""
    with relay(etcd.endpoints[0]) as between:
        yield between


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[Kubernetes]:
    """An API server, for all tests that take a namespace of their own."""
    with kubernetes_servers() as servers:
        yield servers


@pytest.fixture
def namespace(kubernetes: Kubernetes) -> Iterator[Namespace]:
    """A namespace in which nothing is yet, with a service account for `leasectl`."""
    with new_namespace(kubernetes) as namespace:
        yield namespace


@pytest.fixture
def between_api(namespace: Namespace) -> Iterator[Relay]:
    """What the namespace's clients can be made to talk to instead of the API server itself."""
    with namespace.relay() as between:
        yield between


@pytest.fixture
def kubeconfig(namespace: Namespace, tmp_path: Path) -> Path:
    """The kubeconfig of the namespace's service account, with a token of an hour."""
    return namespace.account.kubeconfig(tmp_path / "kubeconfig")


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """Where a state directory may be made; nothing is there yet."""
    return tmp_path / "state"


@pytest.fixture
def cli(state_dir: Path, tmp_path: Path) -> Iterator[Cli]:
    """``leasectl`` in real processes, on a state directory of its own."""
    cli = Cli(state_dir, tmp_path)
    yield cli
    cli.close()


@pytest.fixture
def manual_clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """A clock that a test advances. No keeper starts: for its real clock all would have expired."""
    monkeypatch.setattr(keeper_process, "ensure", lambda state: None)
    return ManualClock()


@pytest.fixture
def other_user(tmp_path: Path) -> Iterator[CliOfAnotherUser]:
    """``leasectl`` as another user, in a folder of theirs that they can get at."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        home = Path(folder, "home")
        home.mkdir()
        cli = CliOfAnotherUser(home / "state", tmp_path)
        os.chown(home, cli.uid, cli.uid)
        cli.env["HOME"] = "/nonexistent"
        yield cli
        cli.close()
