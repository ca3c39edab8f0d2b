"""What a probe finds out about etcd, against a real cluster."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Callable

import httpx
import pytest

from leasectl.backends.etcd import EtcdBackend
from leasectl.backends.kinds import Context
from leasectl.engines.etcd.address import EtcdAddress
from leasectl.engines.etcd.gateway import Gateway
from leasectl.engines.etcd.requests import read_all
from leasectl.errors import BackendUnreachable
from leasectl.system.clock import Clock
from tests.kit.etcd.server import EtcdServer, etcd_server
from tests.kit.waits import eventually

PREFIX = "/ci"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EtcdServer]:
    with etcd_server(3) as server:
        yield server


def probe_of(*endpoints: str) -> Callable[[], None]:
    """A new one, which begins with the first member."""
    members = ",".join(endpoint.partition("://")[2] for endpoint in endpoints)
    return EtcdBackend.open_probe(Context(f"etcd://{members}{PREFIX}"))


def works(*endpoints: str) -> bool:
    try:
        probe_of(*endpoints)()
    except BackendUnreachable:
        return False
    return True


def followers(cluster: EtcdServer) -> list[int]:
    leader = cluster.leader()
    return [member for member in range(3) if member != leader]


def test_it_leaves_no_trace(cluster: EtcdServer) -> None:
    gateway = Gateway(EtcdAddress(tuple(cluster.endpoints)), clock=Clock())
    before = gateway.read(read_all("/"))
    probe = probe_of(*cluster.endpoints)
    for _ in range(3):
        probe()
    assert gateway.read(read_all("/")) == before
    gateway.close()


def test_one_member_that_hangs_does_not_matter(cluster: EtcdServer) -> None:
    hanging, *_ = followers(cluster)
    others = [each for each in cluster.endpoints if each != cluster.endpoints[hanging]]
    cluster.signal(hanging, signal.SIGSTOP)
    try:
        eventually(lambda: works(cluster.endpoints[hanging], *others))
    finally:
        cluster.signal(hanging, signal.SIGCONT)


def test_a_member_that_answers_all_alone_does_not_do(cluster: EtcdServer) -> None:
    hanging, alone = followers(cluster), cluster.endpoints[cluster.leader()]
    for member in hanging:
        cluster.signal(member, signal.SIGSTOP)
    try:
        gateway = Gateway(EtcdAddress((alone,)), clock=Clock())
        gateway.commit((), ())  # it would answer what needs nobody else
        gateway.close()
        assert not works(alone)
    finally:
        for member in hanging:
            cluster.signal(member, signal.SIGCONT)
    eventually(lambda: works(*cluster.endpoints))


def test_a_cluster_without_space_does_not_do(cluster: EtcdServer) -> None:
    def alarm(action: str) -> None:
        body = {"action": action, "memberID": "1", "alarm": "NOSPACE"}
        url = f"{cluster.endpoints[0]}/v3/maintenance/alarm"
        httpx.post(url, json=body, trust_env=False).raise_for_status()

    alarm("ACTIVATE")
    try:
        with pytest.raises(BackendUnreachable, match="database space exceeded"):
            probe_of(*cluster.endpoints)()
    finally:
        alarm("DEACTIVATE")
    assert works(*cluster.endpoints)
