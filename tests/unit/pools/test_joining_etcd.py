"""Joining as held where a server answers late, or not at all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.pool_admin import Decide, Members, Updated
from leasectl.errors import BackendUnreachable
from leasectl.model import Claimant
from leasectl.pools.joining import join_held
from tests.kit.hosts import Hosts
from tests.kit.hosts import hosts as hosts

# Servers are there on one Python only: see scripts/test.
pytestmark = pytest.mark.once


class Unheard:
    """Members whose answers are lost."""

    def __init__(self, members: Members) -> None:
        self._members = members

    def update(
        self, names: Sequence[str], decide: Decide, *, claimant: Claimant | None = None
    ) -> Updated:
        self._members.update(names, decide, claimant=claimant)
        raise BackendUnreachable("its answer was lost")


def test_a_claim_whose_answer_was_lost_is_given_back_and_leaves_the_pool(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.pool("t-1")
    unheard = property(lambda self: Unheard(self.sides.members))
    monkeypatch.setattr(PoolBackend, "members", unheard)
    host = hosts.new()
    with host.service(backend=hosts.url) as service:
        with pytest.raises(BackendUnreachable, match="its answer was lost"):
            join_held(service, "T", "n", lives=None)
        assert service.handles.active() == []
    assert [each.name for each in hosts.access.pool().resources] == ["t-1"]
