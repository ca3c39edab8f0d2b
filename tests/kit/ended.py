"""The fixture that leaves no process of a failed test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.forking import end_all


@pytest.fixture(autouse=True)
def nothing_runs_on() -> Iterator[None]:
    """Of a test that failed half-way, no process is left, wherever this name is imported."""
    yield
    end_all()
