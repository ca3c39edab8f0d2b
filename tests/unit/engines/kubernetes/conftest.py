"""What the tests of the engine of Kubernetes share."""

from __future__ import annotations

import pytest

from tests.kit.marks import once_below

# Servers are there on one Python only: see scripts/test.
pytest_collection_modifyitems = once_below(__file__)


@pytest.fixture
def nobody_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who finds a pool half made or half deleted would wait in vain: nobody goes on meanwhile."""
    for module in ("pools", "ticket"):
        monkeypatch.setattr(f"leasectl.engines.cluster.{module}.pause", lambda seconds: None)
