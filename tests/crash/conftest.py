"""What all crash tests need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.forking import end_all
from tests.unit.cli.etcd.conftest import hosts as hosts


@pytest.fixture(autouse=True)
def nothing_runs_on() -> Iterator[None]:
    """Of a test that failed half-way, no process is left."""
    yield
    end_all()
