"""Hosts for the tests of a user's commands on etcd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.etcd.relay import Relay, relay
from tests.kit.etcd.server import EtcdServer, etcd_server
from tests.kit.hosts import Hosts


@pytest.fixture
def hosts(etcd: EtcdServer, tmp_path: Path) -> Iterator[Hosts]:
    """State directories on pools of the test's own; there is none yet."""
    found = Hosts(etcd.endpoints[0], tmp_path)
    yield found
    found.close()


@pytest.fixture
def network(etcd: EtcdServer) -> Iterator[Relay]:
    """A way to etcd that can be cut."""
    with relay(etcd.endpoints[0]) as between:
        yield between


@pytest.fixture(scope="module")
def own_etcd() -> Iterator[EtcdServer]:
    """A member that may be stopped."""
    with etcd_server() as server:
        yield server
