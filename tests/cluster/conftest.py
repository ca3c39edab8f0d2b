"""What all tests of clusters need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.etcd.server import EtcdServer, etcd_server
from tests.kit.forking import end_all
from tests.kit.marks import once_below

# Servers are there on one Python only: see scripts/test.
pytest_collection_modifyitems = once_below(__file__)


@pytest.fixture
def etcd_cluster() -> Iterator[EtcdServer]:
    """Three members of the test's own, which it may do anything to."""
    with etcd_server(size=3) as server:
        yield server
        end_all()  # of a test that failed half-way, while there still is a server to end at
