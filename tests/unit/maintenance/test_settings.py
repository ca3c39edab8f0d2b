"""What the leases of nodes are called, both ways."""

from __future__ import annotations

import pytest

from leasectl.maintenance.controller import Settings
from leasectl.maintenance.facts import Us

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("name", "node", "lease"),
    [
        ("{node}", "worker-1", "worker-1"),
        ("window-{node}", "worker-1", "window-worker-1"),
        ("{node}.window", "worker-1", "worker-1.window"),
        ("a-{node}-z", "worker-1", "a-worker-1-z"),
    ],
)
def test_a_lease_is_called_after_its_node(name: str, node: str, lease: str) -> None:
    settings = Settings(Us("us"), name)
    assert settings.lease_of(node) == lease
    assert settings.node_of(lease) == node


@pytest.mark.parametrize(("length", "can"), [(248, True), (249, False)])
def test_a_name_may_be_too_long_for_a_lease(length: int, can: bool) -> None:
    why = Settings(Us("us"), "name-{node}").has_no_lease("n" * length)
    assert (why == "") is can
    assert can or "254 characters" in why


@pytest.mark.parametrize("lease", ["worker-1", "a-worker-1", "worker-1-z", "a--z", "a-z", ""])
def test_what_is_called_otherwise_is_no_nodes(lease: str) -> None:
    assert Settings(Us("us"), "a-{node}-z").node_of(lease) == ""
