"""What the tests of the engine of etcd share."""

from __future__ import annotations

import pytest

from tests.kit.etcd.access import NAMES, Access
from tests.kit.etcd.server import EtcdServer
from tests.kit.forking import nothing_runs_on as nothing_runs_on
from tests.kit.marks import once_below
from tests.kit.peculiar import serve as serve

# Servers are there on one Python only: see scripts/test.
pytest_collection_modifyitems = once_below(__file__)


@pytest.fixture
def store(etcd: EtcdServer, prefix: str) -> Access:
    """Access to a pool of four that nobody has touched."""
    access = Access(etcd.endpoints, prefix)
    access.pools.create_pool("T", NAMES)
    return access
