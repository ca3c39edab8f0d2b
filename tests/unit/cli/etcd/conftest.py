"""Hosts for the tests of a user's commands on etcd."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.etcd.server import EtcdServer, etcd_server
from tests.kit.hosts import hosts as hosts
from tests.kit.marks import once_below
from tests.kit.relay import Relay, relay

# Servers are there on one Python only: see scripts/test.
pytest_collection_modifyitems = once_below(__file__)


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
