"""Force on several claims that are written meanwhile, so that their one write is refused."""

from __future__ import annotations

import itertools
import time

import pytest

from leasectl.engines.cluster.notes import ClusterNotes
from leasectl.engines.notes import NoteChange
from leasectl.model import Request
from tests.kit.etcd.access import NAMES, Access
from tests.kit.etcd.server import EtcdServer
from tests.kit.relay import Relay

HELD, TTL = tuple(NAMES[:3]), 60.0
# Of the requests: the claims are read before the second; the fifth is the write.
READ, WRITE = 2, 5


def told(access: Access, kind: str) -> list[str]:
    return sorted(name for each in access.events.read() if each.kind == kind for name in each.names)


@pytest.mark.parametrize("number", [READ, WRITE])
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("is_renewed", [True, False])
def test_each_is_lost_once_and_kept_for_as_long_as_its_holder_counts(
    etcd: EtcdServer, between: Relay, prefix: str, is_renewed: bool, at_once: bool, number: int
) -> None:
    """The holder renews all of them before a request; or one of them is noted, and not the rest."""
    holder, through = (Access([each], prefix) for each in (etcd.endpoints[0], between.endpoint))
    holder.pools.create_pool("T", NAMES)
    until = time.monotonic() + TTL
    leases = holder.acquire("me", Request("T", count=3, ttl_seconds=TTL))
    time.sleep(1.1)  # etcd tells in whole seconds how much time is left
    requests = itertools.count(1)

    def write(_at: int, _path: str) -> None:
        nonlocal until
        if next(requests) != number:
            return
        if is_renewed:
            until = time.monotonic() + TTL
            assert holder.engine.renew("me") == HELD
        else:
            change = NoteChange("T", leases[1].name, leases[1].fence, None, "asked")
            assert ClusterNotes(holder.context).change([change]) == (True,)

    between.listen(before=write)
    ended = through.pools.end_early("me", HELD, guard=None, reason="ann", at_once=at_once)
    between.listen()
    assert next(requests) > WRITE + len(HELD)  # it was refused
    assert sorted(ended) == list(HELD)
    assert told(holder, "lost") == list(HELD)
    assert told(holder, "released") == (list(HELD) if at_once else [])
    kept = holder.context.claimed("me")
    assert [each.name for each in kept] == ([] if at_once else list(HELD))
    for each in kept:
        assert each.claim is not None and each.claim.ended and not each.claim.is_over
        left = holder.gateway.seconds_left(int(each.claim.life, 16))
        assert time.monotonic() + left >= until
