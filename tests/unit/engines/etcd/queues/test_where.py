"""Who waits in etcd for resources that something is so of, and for what can't be had."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from leasectl.backends.contract import Patience
from leasectl.engines.contract import Outlook
from leasectl.engines.etcd.gateway.requests import Json, Outcome, put, read
from leasectl.engines.etcd.records import revision_of
from leasectl.engines.etcd.waiting.waiter import EtcdWaiter
from leasectl.engines.membership import cordon
from leasectl.engines.possible import want_of
from leasectl.errors import CorruptState, NoLease
from leasectl.model import Claimant, Request, Where
from tests.kit.etcd.access import NAMES, SHORT, Access, begin_listening, keys_left
from tests.kit.etcd.server import EtcdServer
from tests.kit.forking import ending, fork
from tests.kit.killing import Victim, each_answer_lost
from tests.kit.relay import Relay
from tests.kit.waits import eventually, result_of

EU: Where = (("region", "eu", True),)
US: Where = (("region", "us", True),)
ONE, IN_EUROPE, IN_AMERICA = Request("T"), Request("T", where=EU), Request("T", where=US)


def is_in(access: Access, region: str | None, *names: str) -> None:
    """Have resources be somewhere, or nowhere."""
    properties = () if region is None else (("region", region),)
    members = access.backend.members
    members.update(names, lambda member, _: member._replace(properties=properties))


def is_cordoned(access: Access, name: str, *, is_so: bool = True) -> None:
    access.backend.members.update([name], lambda member, _: cordon(member, is_cordoned=is_so))


@pytest.fixture
def store(store: Access) -> Access:
    """Of its four resources two are in Europe, and one in America."""
    is_in(store, "eu", *NAMES[:2])
    is_in(store, "us", NAMES[2])
    return store


def waiting(access: Access, claim_key: str, request: Request) -> EtcdWaiter:
    """Somebody in the queue, who looks when he is told to."""
    claimant = Claimant(claim_key, f"{claim_key}@host", request)
    waiter = access.engine.waiter(claimant, until=None)
    waiter.enqueue()
    return waiter


def looked(waiter: EtcdWaiter) -> Outlook:
    outlook = waiter.claim()
    assert outlook.leases is None
    return outlook


def got(waiter: EtcdWaiter) -> list[str]:
    leases = waiter.claim().leases
    assert leases is not None
    return [lease.name for lease in leases]


def participate(between: Relay, store: Access) -> None:
    """What a participant does that is going to be killed."""
    access = Access([between.endpoint], store.keys.prefix)
    access.acquire("dead", Request("T", count=2, ttl_seconds=SHORT, where=EU), wait=0)
    access.engine.free("dead")


class TestBetweenItsLookAndItsClaim:
    """What changes before a claim is made of what was seen keeps it from being made."""

    def claim_late(
        self, access: Access, waiter: EtcdWaiter, monkeypatch: pytest.MonkeyPatch, change: object
    ) -> Outlook:
        """Have it claim, and something change right before."""
        commit = access.gateway.commit
        assert callable(change)

        def change_first(
            guards: Sequence[Json], then: Sequence[Json], otherwise: Sequence[Json] = ()
        ) -> Outcome:
            if len(then) > 5 and guards:  # a claim, and no look
                monkeypatch.setattr(access.gateway, "commit", commit)
                change()
            return commit(guards, then, otherwise)

        monkeypatch.setattr(access.gateway, "commit", change_first)
        outlook = waiter.claim()
        assert access.gateway.commit == commit, "nothing was claimed"
        return outlook

    @pytest.fixture
    def mine(self, etcd: EtcdServer, store: Access) -> Access:
        return Access(etcd.endpoints, store.keys.prefix)

    def test_what_it_was_to_get_is_something_else(
        self, store: Access, mine: Access, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waiter = waiting(mine, "late", IN_AMERICA)
        outlook = self.claim_late(mine, waiter, monkeypatch, lambda: is_in(store, "eu", NAMES[2]))
        assert outlook.leases is None
        assert "no resource for --where region=us; there is: region=eu (3)" in str(
            outlook.impossible
        )

    def test_a_better_one_could_use_it_now(
        self, store: Access, mine: Access, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.acquire("holder", Request("T", 2, where=EU))
        better = waiting(store, "better", IN_EUROPE)
        looked(better)
        late = waiting(mine, "late", ONE)
        outlook = self.claim_late(mine, late, monkeypatch, lambda: is_in(store, "eu", NAMES[2]))
        assert [lease.name for lease in outlook.leases or ()] == [NAMES[3]]
        assert got(better) == [NAMES[2]]

    def test_a_better_one_can_be_met_again(
        self, store: Access, mine: Access, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        better = waiting(store, "better", Request("T", 4))
        is_cordoned(store, NAMES[3])
        assert looked(better).impossible
        late = waiting(mine, "late", ONE)
        uncordon = lambda: is_cordoned(store, NAMES[3], is_so=False)  # noqa: E731
        outlook = self.claim_late(mine, late, monkeypatch, uncordon)
        assert outlook == Outlook(is_behind=True)
        assert len(got(better)) == 4


class TestPassing:
    def test_one_that_can_be_met_again_has_its_place_back(self, store: Access) -> None:
        store.acquire("holder", Request("T", name=NAMES[0]))
        first, second = waiting(store, "first", Request("T", 4)), waiting(store, "second", ONE)
        assert looked(first).is_head
        assert looked(second) == Outlook(is_behind=True)
        is_cordoned(store, NAMES[3])
        assert looked(first).impossible
        third = waiting(store, "third", Request("T", 4 - 1))
        assert looked(third).is_behind
        assert got(second) == [NAMES[1]]
        assert looked(third).is_head
        is_cordoned(store, NAMES[3], is_so=False)
        assert looked(third) == Outlook(is_behind=True)
        assert looked(first) == Outlook(is_head=True)

    def test_neither_counts_nor_shows_as_waiting_before_others(self, store: Access) -> None:
        store.acquire("holder", Request("T", 4))
        first = waiting(store, "first", Request("T", 4))
        assert looked(first).is_head
        is_cordoned(store, NAMES[3])
        second = waiting(store, "second", ONE)
        assert looked(second).is_head
        assert looked(first).impossible
        assert (second.standing().position, second.standing().held) == (1, 4)
        assert [entry.suspended for entry in store.pool().queue] == [True, False]
        store.engine.free("holder")
        assert second.standing().held == 0  # although one of them isn't free for anybody
        assert first.standing().others == 1

    def test_who_is_before_one_by_name_is_who_could_use_it(self, store: Access) -> None:
        store.acquire("holder", Request("T", 4))
        for number, where in enumerate((EU, US, EU)):
            waiting(store, f"w{number}", Request("T", where=where))
        named = waiting(store, "named", Request("T", name=NAMES[2]))
        assert looked(named) == Outlook(is_behind=True)
        assert named.standing().position == 2
        is_in(store, "asia", NAMES[2])
        assert looked(named) == Outlook(is_head=True)

    def test_whoever_waits_is_woken_by_what_resources_become(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        """Behind another, who then leaves it something."""
        store.acquire("holder", Request("T", 2, where=EU))
        better = waiting(store, "better", Request("T", 2, where=EU))
        looked(better)
        named = Request("T", name=NAMES[0])
        pending = begin_listening(Access([between.endpoint], prefix), between, named)
        store.engine.free("holder", NAMES[:1])
        assert not pending.done()
        is_in(store, None, NAMES[0])
        assert [lease.name for lease in result_of(pending)] == NAMES[:1]

    def test_whoever_is_warned_is_told_again_when_it_can_be_met(self, store: Access) -> None:
        store.acquire("holder", IN_AMERICA)
        said: list[str] = []
        pending = store.begin("waiter", IN_AMERICA, Patience(warn=said.append))
        eventually(lambda: store.queue() == ["waiter"])
        is_in(store, "asia", NAMES[2])
        eventually(lambda: said)
        is_in(store, "us", NAMES[3])
        assert [lease.name for lease in result_of(pending)] == NAMES[3:]
        assert [line.partition(";")[0] for line in said[:1]] == [
            'pool "T" has no resource for --where region=us'
        ]


class TestRequests:
    """What it costs: nothing to those who ask for nothing of the kind."""

    def needed(self, between: Relay, access: Access, request: Request) -> int:
        before = len(between.paths)
        access.acquire("holder", request)
        number = len(between.paths) - before
        access.engine.free("holder")
        return number

    def test_are_two_more_for_who_asks_for_some(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        access = Access([between.endpoint], prefix)
        self.needed(between, access, ONE)  # the first learns where events are written
        assert [self.needed(between, access, each) for each in (ONE, IN_EUROPE)] == [3, 5]

    def test_is_one_more_behind_one_who_asks_for_some(
        self, store: Access, between: Relay, prefix: str
    ) -> None:
        access = Access([between.endpoint], prefix)
        self.needed(between, access, ONE)
        store.acquire("other", Request("T", 2, where=EU))
        looked(waiting(store, "better", IN_EUROPE))
        assert self.needed(between, access, ONE) == 3 + 1


@pytest.mark.parametrize("wrong", ['"eu"', '[["region"]]', '[["a b", "c", true]]', '[["a", 1, 1]]'])
def test_a_ticket_that_nobody_of_ours_has_written_keeps_all_from_others(
    store: Access, wrong: str
) -> None:
    store.acquire("holder", Request("T", 2, where=EU))
    first = waiting(store, "first", IN_EUROPE)
    looked(first)
    key = store.keys.ticket("T", first.ticket.etcd_lease_id)
    (found,) = store.gateway.read(read(key)).answers
    assert found.first is not None
    value = found.first.value.replace('[["region", "eu", true]]', wrong)
    store.gateway.commit((), [put(key, value, etcd_lease_id=first.ticket.etcd_lease_id)])
    assert looked(waiting(store, "second", ONE)).is_behind
    with pytest.raises(CorruptState, match="ticket/T/"):
        store.pools.pools("T")


class TestKilled:
    def test_at_any_of_its_requests_who_asks_for_some_leaves_nothing(
        self, etcd: EtcdServer, between: Relay, prefix: str
    ) -> None:
        stores: list[Access] = []
        is_killed = True
        while is_killed:
            store = Access(etcd.endpoints, f"{prefix}/{len(stores)}")
            store.pools.create_pool("T", NAMES)
            is_in(store, "eu", *NAMES[:2])
            victim = Victim(between, "after", fatal=len(stores) + 1)
            is_killed = victim.run(lambda s=store: participate(between, s))  # type: ignore[misc]
            stores.append(store)
        assert len(stores) > 6
        for store in stores:
            assert len(store.acquire("next", Request("T", 2, where=EU))) == 2
            store.engine.free("next")
            eventually(lambda s=store: keys_left(s) == [], what=str(keys_left(store)))  # type: ignore[misc]

    def test_whichever_answer_is_lost_it_is_the_same(
        self, etcd: EtcdServer, between: Relay, prefix: str
    ) -> None:
        for losing in each_answer_lost(between, more_than=8):
            place = f"{prefix}/{losing.number}"
            direct = Access(etcd.endpoints, place)
            direct.pools.create_pool("T", NAMES)
            losing.begin()
            through = Access([between.endpoint], place)
            is_in(through, "eu", *NAMES[1:3])
            leases = through.acquire("me", Request("T", 2, where=EU), wait=0)
            assert [lease.name for lease in leases] == NAMES[1:3], losing.number
            with pytest.raises(NoLease):
                through.acquire("other", IN_EUROPE, wait=0)
            assert through.engine.free("me") == tuple(NAMES[1:3])
            assert (keys_left(direct), direct.held()) == ([], []), losing.number


class Grant(NamedTuple):
    """What a request has got; the ticket and the revision say from when to when it has waited."""

    ticket: int
    revision: int
    names: tuple[str, ...]
    request: Request


PROPERTIES = {NAMES[0]: "eu", NAMES[1]: "eu", NAMES[2]: "us", NAMES[3]: ""}
WANTED = (
    *(Request("T", count) for count in (1, 1, 2, 4)),
    *(Request("T", count, where=EU) for count in (1, 1, 2)),
    Request("T", where=US),
    Request("T", 2, where=(("region", "eu", False),)),
    *(Request("T", name=name) for name in NAMES[1:3]),
)


def take_turns(endpoints: Sequence[str], prefix: str, seed: int, turns: int, out: Path) -> None:
    """What one of many does who wants this and that."""
    access, chance = Access(endpoints, prefix), random.Random(seed)
    for _ in range(turns):
        wanted = chance.randrange(len(WANTED))
        leases = access.acquire(f"p{seed}", WANTED[wanted])
        time.sleep(0.001)
        access.engine.free(f"p{seed}")
        line = [leases[0].ticket, revision_of(leases[0].fence), [e.name for e in leases], wanted]
        with out.open("a") as file:  # a line at a time, which is one write
            file.write(json.dumps(line) + "\n")


def passed_over(grants: Sequence[Grant]) -> list[tuple[Grant, Grant]]:
    """Grants of what a better one could use that still waited, each with that."""
    where = {name: (("region", region),) if region else () for name, region in PROPERTIES.items()}
    return [
        (grant, better)
        for grant in grants
        for better in grants
        if better.ticket < grant.ticket and better.revision > grant.revision
        for name in grant.names
        if want_of(better.request).could_use(name, where[name])
    ]


def test_nobody_gets_what_a_better_one_could_use(
    etcd: EtcdServer, store: Access, prefix: str, tmp_path: Path
) -> None:
    processes, turns = 8, 6
    pids = [
        fork(lambda n=n: take_turns(etcd.endpoints, prefix, n, turns, tmp_path / "grants"))  # type: ignore[misc]
        for n in range(processes)
    ]
    assert [ending(pid) for pid in pids] == [0] * processes
    lines = [json.loads(line) for line in (tmp_path / "grants").read_text().splitlines()]
    grants = [Grant(t, r, tuple(names), WANTED[wanted]) for t, r, names, wanted in lines]
    assert len(grants) == processes * turns
    for grant in grants:
        want = want_of(grant.request)
        assert all(want.could_use(name, (("region", PROPERTIES[name]),)) for name in grant.names)
    assert any(
        better.ticket < grant.ticket and better.revision > grant.revision
        for grant in grants
        for better in grants
    ), "nobody has passed another"
    assert passed_over(grants) == []
    assert keys_left(store) == []
