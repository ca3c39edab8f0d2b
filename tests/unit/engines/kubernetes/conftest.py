"""What the tests of the engine of Kubernetes share."""

from __future__ import annotations

from tests.kit.marks import once_below

# Servers are there on one Python only: see scripts/test.
pytest_collection_modifyitems = once_below(__file__)
