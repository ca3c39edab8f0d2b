"""The order of a queue in etcd by priority, and what guards it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Callable

import pytest

from leasectl.engines.contract import Outlook
from leasectl.engines.etcd.gateway.requests import Json, KeyValue, Outcome, decode, put, read_all
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.queues.rank import (
    encode_rank,
    in_order,
    none_better_since,
    precedes,
    priorities,
    priority_in,
)
from leasectl.engines.etcd.waiting.waiter import EtcdWaiter
from leasectl.engines.facts import PoolSettings
from leasectl.errors import CorruptState
from leasectl.model import Claimant, Request
from tests.kit.etcd.access import SHORT, Access, begin_listening, keys_left
from tests.kit.relay import Relay
from tests.kit.waits import eventually, result_of

KEYS = Keys("/p", "here")


def ticket(number: int) -> KeyValue:
    return KeyValue(KEYS.ticket("T", number), "", number, number)


def rank(priority: int, number: int, *, is_known: bool = True) -> KeyValue:
    written = encode_rank(priority, number if is_known else None)
    return KeyValue(KEYS.rank("T", written, number), "", number, number)


@pytest.mark.parametrize("priority", [-100, -1, 0, 1, 100, 123456])
def test_a_priority_is_read_back(priority: int) -> None:
    assert priority_in(rank(priority, 7)) == priority
    assert priority_in(rank(priority, 7, is_known=False)) == priority


def test_another_key_there_is_said_to_be_unreadable() -> None:
    with pytest.raises(CorruptState):
        priority_in(KeyValue("/p/rank/T/what/ever/7", "", 1, 1))


def test_the_keys_sort_as_their_tickets_are_served() -> None:
    ranks = [rank(p, n) for p in (-3, 0, 2) for n in (5, 11)]
    tickets = [ticket(number) for number in (5, 11)]
    for kv in ranks:
        assert priorities([kv]) == {int(kv.key.rpartition("/")[2], 16): priority_in(kv)}
    best_first = sorted(ranks, key=lambda kv: (-priority_in(kv), int(kv.key.split("/")[-2])))
    assert [kv.key for kv in best_first] == sorted(kv.key for kv in ranks)
    assert in_order(tickets, {}) == tickets
    assert in_order(tickets, {11: 1}) == tickets[::-1]


def test_who_is_better_than_one_writes_below_what_its_claim_is_guarded_by() -> None:
    """Of any who come or rise after a look; who counts with 0 and writes nothing comes with a
    ticket."""
    rng = random.Random(3)
    for _ in range(500):
        mine, number, seen = rng.randint(-3, 3), rng.randint(10, 20), 30
        guards = none_better_since(KEYS, "T", number, mine, seen)
        theirs = rng.randint(-3, 3)
        is_new = rng.random() < 0.5
        other = rng.randint(31, 40) if is_new else rng.choice([*range(5, number), number + 5])
        is_better = precedes(ticket(other), {other: theirs}, mine, number)
        written = rank(theirs, other, is_known=not is_new).key
        is_caught = _is_in(written, guards[0])
        assert is_better <= is_caught, (mine, number, theirs, other)
        if not is_new:
            assert is_better == is_caught
        unranked = precedes(ticket(40), {}, mine, number)
        assert unranked == (len(guards) == 2)


def _is_in(key: str, guard: object) -> bool:
    assert isinstance(guard, dict)
    return bool(decode(guard["key"]) <= key < decode(guard["range_end"]))


def put_ticket(access: Access, claim_key: str, request: Request) -> EtcdWaiter:
    claimant = Claimant(claim_key, f"{claim_key}@host", request)
    waiter = access.engine.waiter(claimant, until=None)
    waiter.enqueue()
    return waiter


class TestBetweenLookAndClaim:
    """The head has looked, and its claim is on the way, when something changes.

    Who counts with 0 has looked as its ticket was put.
    """

    def claim_late(
        self,
        between: Relay,
        head: EtcdWaiter,
        meanwhile: Callable[[], object],
        *,
        looks: int = 0,
    ) -> Outlook:
        looked = len(between.paths) + looks
        is_done: list[object] = []

        def change_once(number: int, _path: str) -> None:
            if number > looked and not is_done:
                is_done.append(meanwhile())

        between.listen(before=change_once)
        outlook = head.claim()
        between.listen()
        assert is_done
        return outlook

    @pytest.mark.parametrize(("priority", "better"), [(0, 1), (-1, 0), (-5, -1), (3, 100)])
    def test_who_is_better_comes(
        self, store: Access, between: Relay, prefix: str, priority: int, better: int
    ) -> None:
        slow = Access([between.endpoint], prefix)
        slow.engine.free("warm-up", [])
        head = put_ticket(slow, "head", Request("T", count=2, priority=priority))
        came: list[EtcdWaiter] = []

        def come() -> None:
            came.append(put_ticket(store, "newcomer", Request("T", priority=better)))

        assert self.claim_late(between, head, come, looks=int(priority != 0)).is_behind
        assert store.held() == []
        assert came[0].claim().leases
        assert head.claim().leases

    @pytest.mark.parametrize(("priority", "worse"), [(0, 0), (0, -1), (3, 3), (3, 0), (-1, -1)])
    def test_one_that_is_no_better_changes_nothing(
        self, store: Access, between: Relay, prefix: str, priority: int, worse: int
    ) -> None:
        slow = Access([between.endpoint], prefix)
        head = put_ticket(slow, "head", Request("T", priority=priority))
        request = Request("T", priority=worse)
        come = lambda: put_ticket(store, "newcomer", request)  # noqa: E731
        outlook = self.claim_late(between, head, come, looks=int(priority != 0))
        assert outlook.leases

    def test_a_pace_is_set_that_nothing_is_left_of(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        paced = PoolSettings(pace_seconds=60.0)
        store.pools.change_settings("T", paced._replace(burst=2))
        store.acquire("holder", Request("T"))
        head = put_ticket(Access([between.endpoint], prefix), "head", Request("T"))
        outlook = self.claim_late(between, head, lambda: store.pools.change_settings("T", paced))
        assert outlook.next_grant_at is not None

    def test_what_a_better_one_waits_for_by_name_is_freed(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        """Both then wait for the time alone, which is the better one's."""
        store.pools.change_settings("T", PoolSettings(pace_seconds=60.0, burst=3))
        store.acquire("holder", Request("T", name="T--1"))
        better = put_ticket(store, "better", Request("T", name="T--1"))
        assert better.claim().leases is None
        head = put_ticket(Access([between.endpoint], prefix), "head", Request("T", name="T--2"))
        # For all tickets, and for what is free; what it takes is read as well.
        outlook = self.claim_late(between, head, lambda: store.engine.free("holder"), looks=3)
        assert outlook.is_behind
        assert better.claim().leases
        assert head.claim().leases


def test_a_look_that_writes_nothing_sends_what_it_reads_once(
    store: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (put_ticket(store, each, Request("T")) for each in ("a", "b"))
    sent: list[tuple[int, int, int]] = []
    commit = store.gateway.commit

    def note(
        guards: Sequence[Json], then: Sequence[Json], otherwise: Sequence[Json] = ()
    ) -> Outcome:
        sent.append((len(guards), len(then), len(otherwise)))
        return commit(guards, then, otherwise)

    assert second.claim().is_behind  # as was seen when it was put
    monkeypatch.setattr(store.gateway, "commit", note)
    assert second.claim().is_behind
    assert sent == [(0, 14, 0)]  # each costs etcd as much as it costs us, taken or not
    assert first.claim().leases


class TestInEtcd:
    def test_a_newcomer_that_is_better_has_the_claim_of_the_head_fail(self, store: Access) -> None:
        """The head has seen that it is its turn; the other comes before the claim is made."""
        store.acquire("holder", Request("T", count=4))
        head = store.engine.waiter(Claimant("head", "head@host", Request("T")), until=None)
        head.enqueue()
        assert head.claim().is_head
        better = Claimant("better", "better@host", Request("T", priority=1))
        newcomer = store.engine.waiter(better, until=None)
        newcomer.enqueue()
        store.engine.free("holder", ["T--0"])
        assert head.claim().is_behind
        assert newcomer.claim().leases
        assert head.claim().is_head
        head.dequeue()
        assert not any(key.startswith("rank/") for key in keys_left(store))

    def test_one_with_a_priority_below_all_others_is_passed_by_plain_ones(
        self, store: Access
    ) -> None:
        store.acquire("holder", Request("T", count=4))
        low = Claimant("low", "low@host", Request("T", priority=-1))
        head = store.engine.waiter(low, until=None)
        head.enqueue()
        assert head.claim().is_head
        plain = store.engine.waiter(Claimant("plain", "plain@host", Request("T")), until=None)
        plain.enqueue()
        store.engine.free("holder", ["T--0"])
        assert head.claim().is_behind
        assert plain.claim().leases

    def test_tickets_without_a_rank_count_with_0(self, store: Access) -> None:
        store.acquire("holder", Request("T", count=4))
        old = store.keys.ticket("T", 77)
        store.gateway.commit(
            (),
            [
                put(
                    old,
                    '{"owner": "x/y/1", "holder_identity": "old@host", "count": 1, "since": 1.0, '
                    '"pid": null, "name": null, "labels": [], "priority": 0}',
                )
            ],
        )
        for priority, position in ((1, 1), (0, 3), (-1, 4)):
            claimant = Claimant(f"p{priority}", "me@host", Request("T", priority=priority))
            waiter = store.engine.waiter(claimant, until=None)
            waiter.enqueue()
            assert waiter.standing().position == position
        shown = [entry.holder_identity for entry in store.pool().queue]
        assert shown == ["me@host", "old@host", "me@host", "me@host"]

    def test_each_raises_its_own_with_one_request_each_time(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        store.pools.change_settings("T", PoolSettings(aging_seconds=0.4))
        store.acquire("holder", Request("T", count=4))
        request = Request("T", priority=-1, ttl_seconds=SHORT)
        pending = begin_listening(Access([between.endpoint], prefix), between, request)
        before = len(between.paths)
        eventually(lambda: [e.effective_priority for e in store.pool().queue] == [2])
        # Besides, it looks once what its watch may have missed before that began.
        assert between.paths[before:].count("/v3/kv/txn") <= 1 + 3
        (rank_key,) = store.gateway.read(read_all(store.keys.ranks("T"))).answers[0].items
        assert rank_key.etcd_lease_id
        store.engine.free("holder")
        assert len(result_of(pending)) == 1
        assert not any(key.startswith("rank/") for key in keys_left(store))


def test_a_group_at_the_head_claims_nothing_twice_that_a_better_one_had_meanwhile(
    store: Access,
) -> None:
    store.acquire("most", Request("T", count=3))
    group = store.begin("group", Request("T", count=2))
    eventually(lambda: store.queue() == ["group"])
    for number in range(5):
        store.acquire(f"better {number}", Request("T", priority=1))
        store.engine.free(f"better {number}")
    assert not group.done()
    store.engine.free("most")
    assert len({lease.name for lease in result_of(group)}) == 2
