"""Claims that etcd ends before their holders can know; against a real server."""

from __future__ import annotations

import contextlib
import itertools
import time
from typing import Callable

import pytest

from leasectl.engines.etcd.gateway.requests import put, read_all
from leasectl.engines.notes import NoteChange
from leasectl.errors import (
    NoLease,
    NotAllowed,
)
from leasectl.model import Lease, Request
from tests.kit.etcd.access import NAMES, SHORT, Access, keys_left
from tests.kit.etcd.server import EtcdServer
from tests.kit.killing import Victim, each_answer_lost
from tests.kit.relay import Relay
from tests.kit.waits import eventually


class TestEndedEarly:
    """Whoever revokes a claim's etcd lease ends it before its holder can know."""

    @staticmethod
    def revoke(store: Access, ttl_seconds: float) -> Lease:
        (lease,) = store.acquire("holder", Request("T", name=NAMES[0], ttl_seconds=ttl_seconds))
        (etcd_lease_id,) = store.etcd_lease_ids()
        store.gateway.revoke(etcd_lease_id)
        return lease

    @pytest.fixture
    def revoked(self, store: Access) -> Lease:
        """A lease of which that is so; it is the only one."""
        return self.revoke(store, SHORT)

    @pytest.fixture
    def held_on(self, store: Access) -> Lease:
        """The same, with a ttl that isn't over for as long as a test takes."""
        return self.revoke(store, 60.0)

    def test_it_is_granted_to_nobody_before_its_holder_had_to_stop(
        self, store: Access, revoked: Lease
    ) -> None:
        (lease,) = store.acquire("next", Request("T", name=revoked.name))
        assert lease.acquire_time >= revoked.renew_time + SHORT
        assert lease.fence > revoked.fence
        assert store.lost == [("holder", (revoked.name,))]

    def test_until_then_it_shows_as_held_and_its_pool_is_in_use(
        self, store: Access, held_on: Lease
    ) -> None:
        assert store.held() == [held_on.name]
        with pytest.raises(NotAllowed):
            store.pools.remove_resources("T", [held_on.name], force=False)
        with pytest.raises(NotAllowed):
            store.pools.delete_pool("T", force=False)

    @pytest.mark.usefixtures("held_on")
    def test_others_are_granted_meanwhile(self, store: Access) -> None:
        assert len(store.acquire("other", Request("T", count=3), wait=0)) == 3

    def test_its_holder_learns_of_it_and_has_given_it_back_by_a_release(
        self, store: Access, held_on: Lease
    ) -> None:
        assert store.engine.renew("holder") == ()
        assert store.held() == [held_on.name]
        assert store.engine.free("holder") == ()
        assert store.held() == []
        assert len(store.acquire("next", Request("T", count=4), wait=0)) == 4

    def test_a_clock_that_is_wrong_delays_that_for_a_ttl_at_most(
        self, store: Access, revoked: Lease
    ) -> None:
        date_in_an_hour(store)
        (lease,) = store.acquire("next", Request("T", name=revoked.name))
        assert lease.acquire_time < revoked.acquire_time + 3600

    def test_what_has_run_out_in_time_is_freed_without_further_ado(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        store.acquire("holder", Request("T", count=4, ttl_seconds=SHORT))
        eventually(lambda: store.held() == [], what="it has run out")
        Access([between.endpoint], prefix).acquire("next", Request("T"), wait=0)
        assert between.paths.count("/v3/lease/grant") == 1  # its own
        # Possible? In the queue; what has run out, that claim, and free it; look; claim.
        assert between.paths.count("/v3/kv/txn") == 7


def date_in_an_hour(store: Access) -> None:
    """Have it look as if a holder's clock were an hour ahead; there is one holder."""
    (found,) = store.gateway.read(read_all(store.keys.renewals("T"))).answers
    (date,) = found.items
    store.gateway.commit((), [put(date.key, str(float(date.value) + 3600))])


def ask(store: Access, *, endpoint: str | None = None) -> list[Lease]:
    """What a process of its own gets, and gives back, that doesn't wait for the first resource."""
    access = Access([endpoint or store.gateway.endpoints[0]], store.keys.prefix)
    leases: list[Lease] = []
    with contextlib.closing(access.gateway), contextlib.suppress(NoLease):
        request = Request("T", name=NAMES[0], ttl_seconds=SHORT)
        leases += access.acquire("asks", request, wait=0)
        access.engine.free("asks")
    return leases


class TestEndedEarlyWhereNobodyWaits:
    """The same, with a holder whose clock is ahead, and for processes that are gone at once."""

    @pytest.fixture
    def new_store(self, etcd: EtcdServer, prefix: str) -> Callable[[], Access]:
        """Makes one of which that is so."""
        numbers = itertools.count()

        def make() -> Access:
            store = Access(etcd.endpoints, f"{prefix}/{next(numbers)}")
            store.pools.create_pool("T", NAMES)
            store.acquire("holder", Request("T", name=NAMES[0], ttl_seconds=SHORT))
            (etcd_lease_id,) = store.etcd_lease_ids()
            store.gateway.revoke(etcd_lease_id)
            date_in_an_hour(store)
            return store

        return make

    @staticmethod
    def come_free(*stores: Access) -> None:
        """Wait until it can be had in all of them, and see that nothing is left then."""
        waiting = list(stores)

        def all_had() -> bool:
            waiting[:] = [store for store in waiting if not ask(store)]
            return not waiting

        eventually(all_had)
        for store in stores:
            eventually(lambda s=store: keys_left(s) == [], what=str(keys_left(store)))  # type: ignore[misc]

    def test_it_is_had_a_ttl_after_the_first_of_them_saw_it_and_no_earlier(
        self, new_store: Callable[[], Access]
    ) -> None:
        store, first = new_store(), time.time()
        assert ask(store) == []
        (lease,) = eventually(lambda: ask(store))
        assert lease.acquire_time >= first + SHORT

    def test_a_date_that_has_passed_shortens_that(self, new_store: Callable[[], Access]) -> None:
        store = new_store()
        assert ask(store) == []
        (found,) = store.gateway.read(read_all(store.keys.renewals("T"))).answers
        store.gateway.commit((), [put(found.items[0].key, "0")])
        assert len(ask(store)) == 1

    def test_who_waits_for_what_another_has_seen_is_woken_when_that_is_over(
        self, new_store: Callable[[], Access]
    ) -> None:
        store, first = new_store(), time.time()
        assert ask(store) == []
        (lease,) = store.acquire("next", Request("T", name=NAMES[0]))
        assert lease.acquire_time >= first + SHORT

    def test_two_at_once_begin_one_ttl(
        self, new_store: Callable[[], Access], between: Relay
    ) -> None:
        store = new_store()

        def overtake(_number: int, _path: str) -> None:
            if between.paths.count("/v3/lease/grant") == 2:
                between.listen()
                assert ask(store) == []

        between.listen(before=overtake)
        assert ask(store, endpoint=between.endpoint) == []
        (gone,) = store.gateway.read(read_all(f"{store.keys.prefix}gone/")).answers
        assert [kv.key.split("/")[-1] for kv in gone.items][1:] == ["seen"]
        assert len(gone.items) == 2
        self.come_free(store)

    def test_whichever_answer_is_lost_it_comes_free(
        self, new_store: Callable[[], Access], between: Relay
    ) -> None:
        stores: list[Access] = []
        for losing in each_answer_lost(between, more_than=8):
            stores.append(new_store())
            losing.begin()
            assert ask(stores[-1], endpoint=between.endpoint) == []
        self.come_free(*stores)

    def test_whoever_is_killed_at_whichever_request_it_comes_free(
        self, new_store: Callable[[], Access], between: Relay
    ) -> None:
        stores: list[Access] = []
        # To die before the next one comes to the same: nothing is kept but in etcd.
        for fatal in itertools.count(1):
            store = new_store()
            victim = Victim(between, "after", fatal=fatal)
            if not victim.run(lambda s=store: ask(s, endpoint=between.endpoint)):  # type: ignore[misc]
                break
            stores.append(store)
        assert len(stores) > 8
        self.come_free(*stores)

    def test_what_is_taken_away_by_force_leaves_nothing(
        self, new_store: Callable[[], Access]
    ) -> None:
        for take in ("remove", "delete"):
            store = new_store()
            assert ask(store) == []
            if take == "remove":
                store.pools.remove_resources("T", [NAMES[0]], force=True)
            else:
                store.pools.delete_pool("T", force=True)
            eventually(lambda s=store: keys_left(s) == [])  # type: ignore[misc]


def test_what_is_noted_at_what_is_taken_from_a_claim_goes_and_at_the_rest_stays(
    store: Access,
) -> None:
    leases = store.acquire("holder", Request("T", count=4, ttl_seconds=60))
    marks = [NoteChange("T", each.name, each.fence, None, "mark") for each in leases]
    assert store.backend.notes.change(marks) == (True,) * 4
    takes: tuple[Callable[[str], object], ...] = (
        lambda name: store.pools.end_early("holder", [name], guard=None, reason="an admin"),
        lambda name: store.pools.remove_resources("T", [name], force=True),
        lambda name: store.engine.free("holder", [name]),
    )
    for number, take in enumerate(takes):
        take(NAMES[number])
        (found,) = store.gateway.read(read_all(store.keys.notes("T"))).answers
        assert [kv.key.rpartition("/")[2] for kv in found.items] == NAMES[number + 1 :]
