"""leasectl.engines.local.witness: since when each could have come, and what is done about that."""

from __future__ import annotations

import pytest

from leasectl.engines.contract import SUSPENDED_AFTER_SECONDS
from leasectl.engines.facts import PoolSettings
from leasectl.engines.local.witness import LocalWitness
from leasectl.engines.rules.membership import Lifetime, join, move
from leasectl.leases.release import release
from leasectl.model import Request, whole
from leasectl.system.process import this_process
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk
from tests.kit.pool_changes import add_resources
from tests.unit.engines.local.waiting import Line
from tests.unit.engines.local.waiting import line as line

DEAD = this_process()._replace(start_time=1)


@pytest.fixture
def witness(desk: Desk) -> LocalWitness:
    """Of a pool of one, and of what it tells of those who went away."""
    desk.pool(1)
    return LocalWitness(desk.state, lost=desk.service.losses.tell, clock=desk.time.clock)


def looks(desk: Desk, witness: LocalWitness, after: float) -> tuple[list[int], float | None]:
    """Have it look after a time: whom it has suspended then, and in how long it looks again."""
    desk.time.advance(after)
    found = [able.ticket.number for able in witness.look()]
    due = witness.due()
    return found, None if due is None else due - desk.time.clock.elapsed()


def test_who_is_next_counts_from_when_the_one_before_was_suspended(
    desk: Desk, witness: LocalWitness
) -> None:
    for number in (1, 2, 3):
        desk.put_ticket(number)
    assert looks(desk, witness, 0.0) == ([], SUSPENDED_AFTER_SECONDS)
    assert looks(desk, witness, SUSPENDED_AFTER_SECONDS) == ([1], SUSPENDED_AFTER_SECONDS)
    # Whoever calls it in between has it look, and nobody begin anew.
    assert looks(desk, witness, 4.0) == ([], SUSPENDED_AFTER_SECONDS - 4.0)
    assert looks(desk, witness, SUSPENDED_AFTER_SECONDS - 4.0) == ([2], SUSPENDED_AFTER_SECONDS)


def test_the_dead_are_taken_away_at_once_and_nobody_is_suspended_for_that(
    desk: Desk, witness: LocalWitness
) -> None:
    desk.put_ticket(1, DEAD)
    desk.put_ticket(2)
    desk.put_ticket(3)
    assert looks(desk, witness, 0.0) == ([], SUSPENDED_AFTER_SECONDS)
    assert desk.tickets() == [2, 3]


def test_who_could_not_claim_has_nothing_to_come_for(desk: Desk, witness: LocalWitness) -> None:
    handle = desk.acquire(Request("T", ttl_seconds=30.0))
    desk.put_ticket(1)
    desk.put_ticket(2)
    assert looks(desk, witness, 0.0) == ([], 30.0)
    assert looks(desk, witness, 29.0) == ([], 1.0)
    assert looks(desk, witness, 1.0) == ([], SUSPENDED_AFTER_SECONDS)
    assert desk.record(handle).lost
    assert looks(desk, witness, SUSPENDED_AFTER_SECONDS) == ([1], SUSPENDED_AFTER_SECONDS)


def test_what_comes_from_another_pool_as_its_lease_runs_out_is_come_for(
    desk: Desk, witness: LocalWitness
) -> None:
    desk.pool(1, "U")
    desk.acquire()
    desk.acquire(Request("U", ttl_seconds=30.0))
    desk.service.members.update(
        ["U--00"], lambda member, pools: move(member, "T", pools, when_free=True)
    )
    desk.put_ticket(1)
    desk.put_ticket(2)
    assert looks(desk, witness, 0.0) == ([], 30.0)
    assert looks(desk, witness, 30.0) == ([], SUSPENDED_AFTER_SECONDS)
    assert looks(desk, witness, SUSPENDED_AFTER_SECONDS)[0] == [1]


def test_under_a_pace_the_first_counts_from_when_it_may_be_granted(
    desk: Desk, witness: LocalWitness
) -> None:
    add_resources(desk.service.members, "T", ["T--01"])
    desk.service.pools.change_settings("T", PoolSettings(pace_seconds=20.0))
    desk.acquire()
    desk.put_ticket(1)
    desk.put_ticket(2)
    assert looks(desk, witness, 0.0) == ([], 20.0 + SUSPENDED_AFTER_SECONDS)
    assert looks(desk, witness, 20.0) == ([], SUSPENDED_AFTER_SECONDS)
    assert looks(desk, witness, SUSPENDED_AFTER_SECONDS)[0] == [1]


def test_what_waits_for_several_pools_is_come_for_once_all_have_enough(
    desk: Desk, witness: LocalWitness
) -> None:
    """Until then it keeps what is free in one of them, and its waiter has nothing to come for."""
    desk.pool(1, "U")
    desk.acquire(Request("U"))
    desk.acquire_beside(Request("T", other_types=("U",), needs_all=True))
    desk.put_ticket(2)
    assert looks(desk, witness, 0.0)[0] == []
    assert looks(desk, witness, 2 * SUSPENDED_AFTER_SECONDS)[0] == []
    # As if its waiter were stopped: what is freed wakes nobody.
    desk.state.db.execute("UPDATE resource SET owner = NULL WHERE name = 'U--00'")
    assert looks(desk, witness, 1.0)[0] == []
    assert looks(desk, witness, SUSPENDED_AFTER_SECONDS - 1.0)[0] == []
    assert looks(desk, witness, 1.0)[0] == [1]


def test_what_was_had_in_between_is_not_what_somebody_let_lie(
    desk: Desk, witness: LocalWitness
) -> None:
    desk.put_ticket(1)
    desk.put_ticket(2)
    looks(desk, witness, 0.0)
    desk.state.db.execute("UPDATE resource SET fence = fence + 1")  # as who is better takes it
    assert looks(desk, witness, 6.0) == ([], SUSPENDED_AFTER_SECONDS)
    assert looks(desk, witness, 6.0) == ([], SUSPENDED_AFTER_SECONDS - 6.0)


def test_is_needed_for_those_behind_others_and_for_names_that_are_there_for_a_time(
    desk: Desk, witness: LocalWitness
) -> None:
    desk.put_ticket(1)
    assert not witness.is_needed()
    desk.put_ticket(2)
    assert witness.is_needed()
    desk.state.db.execute("DELETE FROM ticket")
    assert not witness.is_needed()
    lives = Lifetime(ttl_seconds=5.0)
    desk.service.members.update(["n"], lambda each, pools: join(each, "T", pools, lifetime=lives))
    assert witness.is_needed()
    assert looks(desk, witness, 0.0) == ([], 5.0)
    assert looks(desk, witness, 5.0) == ([], None)
    assert not witness.is_needed()
    assert desk.service.members.members(["n"])[0].pool is None


def test_watches_who_was_told_to_go_and_who_has_a_name_stay(
    desk: Desk, witness: LocalWitness
) -> None:
    handle = desk.acquire(guard=this_process())
    desk.service.pools.end_early(handle.id, handle.names, guard=DEAD, reason="")
    lives = Lifetime(process=this_process())
    desk.service.members.update(["n"], lambda each, pools: join(each, "T", pools, lifetime=lives))
    assert sorted(witness.guards()) == sorted([DEAD, this_process()])
    assert witness.has_any_guard_ended()
    witness.look()
    assert witness.guards() == [this_process()]
    assert not witness.has_any_guard_ended()
    assert desk.held() == {}


def test_who_looks_late_hasnt_seen_whether_anybody_could_come(
    desk: Desk, witness: LocalWitness
) -> None:
    """The machine stood still, as it seems: all have their time anew."""
    desk.put_ticket(1)
    desk.put_ticket(2)
    assert looks(desk, witness, 0.0) == ([], 10.0)
    assert looks(desk, witness, 11.0) == ([1], 10.0)
    assert looks(desk, witness, 30.0) == ([], 10.0)
    assert looks(desk, witness, 10.0) == ([2], 20.0)


def test_who_waits_alone_is_let_be(desk: Desk, witness: LocalWitness) -> None:
    """Nobody is kept from anything by it."""
    desk.put_ticket(1)
    assert looks(desk, witness, 0.0) == ([], None)
    assert looks(desk, witness, 30.0) == ([], None)


def test_who_asks_for_more_than_is_free_is_let_be_with_what_there_is(
    desk: Desk, witness: LocalWitness
) -> None:
    add_resources(desk.service.members, "T", ["T--01"])
    handle = desk.acquire()
    desk.put_ticket(7)
    desk.state.db.execute("UPDATE ticket SET count = 2")
    desk.put_ticket(8)
    assert looks(desk, witness, 0.0) == ([], 30.0)  # nobody behind may take it
    release(desk.service, whole(handle))
    assert looks(desk, witness, 0.0) == ([], 10.0)
    assert looks(desk, witness, 10.0) == ([7], 10.0)


def test_of_those_for_one_name_each_each_could_come(
    desk: Desk, witness: LocalWitness, line: Line
) -> None:
    add_resources(desk.service.members, "T", ["T--01"])
    holder = desk.acquire(Request("T", 2))
    for key, name in (("zero", "T--00"), ("too", "T--00"), ("one", "T--01"), ("other", "T--01")):
        line.come(key, Request("T", name=name))
    assert looks(desk, witness, 0.0) == ([], 30.0)
    release(desk.service, whole(holder))
    assert looks(desk, witness, 0.0) == ([], 10.0)
    assert looks(desk, witness, 10.0) == ([2, 4], 10.0)
    assert line.passed() == ["zero", "one"]
    assert looks(desk, witness, 10.0) == ([3, 5], 10.0)


def test_who_is_suspended_is_called_and_so_is_who_is_behind(
    desk: Desk, witness: LocalWitness, line: Line
) -> None:
    handle = desk.acquire()
    for key in ("first", "second", "third"):
        line.come(key, Request("T"))
    release(desk.service, whole(handle))
    assert line.woken() == ["first", "witness"]
    looks(desk, witness, 0.0)
    assert looks(desk, witness, 10.0) == ([2], 10.0)
    assert line.woken() == ["first", "second", "witness"]
    # It counts again as it looks.
    assert line.gets("second") == ["T--00"]
    assert line.gets("first") is None
    assert line.passed() == []
    assert line.look("third").is_behind
