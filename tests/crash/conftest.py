"""What all crash tests need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.etcd.conftest import hosts as hosts
from tests.crash.forking import end_all


@pytest.fixture(autouse=True)
def nothing_runs_on() -> Iterator[None]:
    """Of a test that failed half-way, no process is left."""
    yield
    end_all()
