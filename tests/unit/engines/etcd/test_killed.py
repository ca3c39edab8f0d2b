"""Processes that die at any of their requests to etcd, and many that live; on a real server.

They are killed when a request is done and nobody has heard of it. They keep nothing but in etcd; so
it is all the same there whether one of them dies after a request or before its next.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from leasectl.errors import InvalidRequest, NotFound
from leasectl.model import Request
from leasectl.system.clock import boottime_seconds
from tests.kit.etcd.access import NAMES, SHORT, Access, keys_left
from tests.kit.etcd.server import EtcdServer
from tests.kit.forking import ending, fork
from tests.kit.history import Recorder, read_history, violations
from tests.kit.killing import Victim
from tests.kit.relay import Relay
from tests.kit.waits import eventually


def participate(between: Relay, store: Access, request: Request) -> None:
    """What a participant does that is going to be killed."""
    access = Access([between.endpoint], store.keys.prefix)
    access.acquire("dead", request, wait=0)
    access.engine.renew("dead")
    access.engine.renew("dead", ttl_seconds=SHORT + 1)
    access.engine.free("dead", NAMES[:1])
    access.engine.free("dead")


def end_early(access: Access) -> None:
    """What somebody does who takes it all from its holder by force."""
    access.pools.end_early("holder", NAMES[:1], guard=None, reason="by an admin")


class TestKilled:
    """Participants that are killed at each of their requests, when it is done."""

    def killed_at_each_request(
        self, etcd: EtcdServer, between: Relay, prefix: str, request: Request
    ) -> list[Access]:
        """One store for each request at which a participant was killed."""
        stores: list[Access] = []
        while True:
            store = Access(etcd.endpoints, f"{prefix}/{len(stores)}")
            store.pools.create_pool("T", NAMES)
            victim = Victim(between, "after", fatal=len(stores) + 1)
            if not victim.run(lambda s=store: participate(between, s, request)):  # type: ignore[misc]
                return stores
            stores.append(store)

    def test_what_the_killed_held_is_free_after_one_ttl(
        self, etcd: EtcdServer, between: Relay, prefix: str
    ) -> None:
        request = Request("T", count=3, ttl_seconds=SHORT)
        stores = self.killed_at_each_request(etcd, between, prefix, request)
        assert len(stores) > 10
        for store in stores:
            assert len(store.acquire("next", Request("T", count=4))) == 4
            store.engine.free("next")
            eventually(lambda s=store: keys_left(s) == [], what=str(keys_left(store)))  # type: ignore[misc]

    def test_what_the_killed_held_for_ever_is_found_by_asking(
        self, etcd: EtcdServer, between: Relay, prefix: str
    ) -> None:
        request = Request("T", count=3)
        stores = self.killed_at_each_request(etcd, between, prefix, request)
        assert len(stores) > 10
        for store in stores:
            store.engine.withdraw("dead")
            store.engine.free("dead")
            assert (keys_left(store), store.held(), store.lost) == ([], [], [])
            assert len(store.acquire("next", Request("T", count=4), wait=0)) == 4

    def test_what_was_to_be_taken_by_force_lasts_for_as_long_as_it_would_have(
        self, etcd: EtcdServer, between: Relay, prefix: str
    ) -> None:
        renewed: list[tuple[Access, float]] = []
        fatal, is_killed = 0, True
        while is_killed:
            fatal += 1
            store = Access(etcd.endpoints, f"{prefix}/{fatal}")
            store.pools.create_pool("T", NAMES[:1])
            store.acquire("holder", Request("T", ttl_seconds=SHORT))
            renewed.append((store, boottime_seconds()))
            store.engine.renew("holder")
            force = Access([between.endpoint], store.keys.prefix)
            is_killed = Victim(between, "after", fatal).run(lambda f=force: end_early(f))  # type: ignore[misc]
        assert fatal > 4
        for store, sent_at in renewed:
            store.acquire("next", Request("T"), wait=20)
            assert boottime_seconds() - sent_at >= SHORT
            store.engine.free("next")

    def test_a_pool_whose_maker_was_killed_does_not_keep_its_names(
        self, etcd: EtcdServer, between: Relay, store: Access, prefix: str
    ) -> None:
        names = [f"U--{n:03d}" for n in range(100)]
        maker = Access([between.endpoint], prefix)
        victim = Victim(between, "after", fatal=7)
        assert victim.run(lambda: maker.pools.create_pool("U", names))
        with pytest.raises(NotFound):
            store.pools.pools("U")
        with pytest.raises(InvalidRequest, match="end that with: leasectl pool delete U"):
            store.pools.create_pool("V", names)
        store.pools.delete_pool("U", force=False)
        store.pools.create_pool("V", names)
        assert store.pool("V").capacity == 100


def test_16_processes_share_4_resources(
    etcd: EtcdServer, store: Access, prefix: str, tmp_path: Path
) -> None:
    history = tmp_path / "history"

    def choose(rng: random.Random) -> Request:
        return rng.choice(
            [
                Request("T"),
                Request("T", count=rng.randint(1, 4), ttl_seconds=60),
                Request("T", name=rng.choice(NAMES)),
            ]
        )

    def take_turns(number: int) -> None:
        access, rng = Access(etcd.endpoints, prefix), random.Random(number)
        recorder = Recorder(history)
        for turn in range(6):
            request = choose(rng)
            leases = access.acquire(f"p{number}", request)
            recorder.note("asked", f"p{number}/{turn}", request.name or "-")
            recorder.write("granted", f"p{number}/{turn}", leases)
            recorder.write("releasing", f"p{number}/{turn}", leases)
            assert len(access.engine.free(f"p{number}")) == len(leases)

    pids = [fork(lambda n=n: take_turns(n)) for n in range(16)]  # type: ignore[misc]
    assert [ending(pid) for pid in pids] == [0] * 16
    events = read_history(history)
    assert len({event.ticket for event in events if event.ticket}) == 96
    assert violations(events, capacity=4) == []
    assert keys_left(store) == []
