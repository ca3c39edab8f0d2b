"""leasectl.engines.local.audit: of sound tables nothing is said, of others what is wrong."""

from __future__ import annotations

from typing import Callable

import pytest

from leasectl.engines.local import audit, member_rows
from leasectl.engines.local.absent import suspend
from leasectl.engines.local.audit import Claim, FenceMismatch, Miscount, Suspended
from leasectl.engines.local.queues import LocalQueues
from leasectl.engines.rules.membership import cordon
from leasectl.leases.release_forced import release_by_force
from leasectl.model import Handle, Request
from leasectl.state.directory import State
from leasectl.system.process import this_process
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk

OF_CLAIMS: tuple[Callable[[State], object], ...] = (
    audit.claims_without_record,
    lambda state: audit.records_without_handle(state, "local:"),
    lambda state: audit.records_without_claim(state, "local:"),
    audit.fence_mismatches,
    lambda state: audit.held_without_lease(state, "local:"),
)
LOOKS: tuple[Callable[[State], object], ...] = (
    *OF_CLAIMS,
    audit.tickets_without_waiter,
    audit.miscounts,
)


def found(desk: Desk) -> list[object]:
    """What each look finds, but for those that find nothing."""
    agree = audit.all_agree(desk.state, "local:")
    assert agree is not any(look(desk.state) for look in OF_CLAIMS)
    return [each for look in LOOKS if (each := look(desk.state))]


@pytest.fixture
def handle(desk: Desk) -> Handle:
    """Holds one of four, beside what was taken by force, what nobody may have, and who waits."""
    desk.pool(4)
    handle = desk.acquire()
    desk.acquire(Request("T", ttl_seconds=60.0))
    release_by_force(desk.service, ["T--01"], reason="")
    desk.service.members.update(["T--02"], lambda each, _: cordon(each, is_cordoned=True))
    desk.acquire_beside(Request("T", count=2))
    return handle


def change(desk: Desk, sql: str, *values: object) -> None:
    with desk.state.transaction() as db:
        db.execute(sql, values)


def test_of_sound_tables_nothing_is_said(desk: Desk, handle: Handle) -> None:
    assert found(desk) == []
    assert audit.suspended_tickets(desk.state) == []


def test_what_no_handle_knows_to_hold_is_named(desk: Desk, handle: Handle) -> None:
    change(desk, "DELETE FROM lease WHERE handle = ?", handle.id)
    assert found(desk) == [[Claim(handle.id, "T--00")], [handle.id]]
    change(desk, "DELETE FROM handle WHERE id = ?", handle.id)
    assert found(desk) == [[Claim(handle.id, "T--00")]]


@pytest.mark.parametrize("state", ["released", "acquiring", None])
def test_what_is_on_record_for_who_holds_nothing_is_named_and_forgotten(
    desk: Desk, handle: Handle, state: str | None
) -> None:
    change(desk, "UPDATE resource SET owner = NULL WHERE owner = ?", handle.id)
    if state is None:
        desk.state.db.execute("PRAGMA foreign_keys = OFF")
        change(desk, "DELETE FROM handle WHERE id = ?", handle.id)
    else:
        change(desk, "UPDATE handle SET state = ? WHERE id = ?", state, handle.id)
    claim = Claim(handle.id, "T--00")
    assert found(desk) == [[claim]]
    assert bool(audit.records_without_handle(desk.state, "etcd://h")) is (state != "acquiring")
    with desk.state.transaction():
        audit.forget_record(desk.state, claim)
    assert found(desk) == []


def test_what_another_holds_is_named(desk: Desk, handle: Handle) -> None:
    change(desk, "UPDATE resource SET owner = NULL WHERE name = 'T--00'")
    assert found(desk) == [[Claim(handle.id, "T--00")]]
    assert audit.records_without_claim(desk.state, "etcd://h") == []


def test_another_fence_is_named_and_corrected(desk: Desk, handle: Handle) -> None:
    change(desk, "UPDATE lease SET fence = 77 WHERE handle = ?", handle.id)
    claim = Claim(handle.id, "T--00")
    assert found(desk) == [[FenceMismatch(claim, 77, handle.leases[0].fence)]]
    with desk.state.transaction():
        audit.correct_fence(desk.state, claim, handle.leases[0].fence)
    assert found(desk) == []


def test_a_ticket_that_nobody_waits_with_is_named(desk: Desk, handle: Handle) -> None:
    ((waiter,),) = desk.state.query("SELECT owner FROM ticket")
    change(desk, "UPDATE handle SET state = 'held' WHERE id = ?", waiter)
    assert found(desk) == [[waiter], [waiter]]  # and it holds nothing
    change(desk, "UPDATE handle SET state = 'acquiring' WHERE id = ?", waiter)


def test_a_pool_that_counts_wrongly_is_named_and_corrected(desk: Desk, handle: Handle) -> None:
    desk.pool(1, "U")
    change(desk, "UPDATE pool SET capacity = 9 WHERE type = 'T'")
    assert found(desk) == [[Miscount("T", 9, 4)]]
    with desk.state.transaction():
        audit.correct_capacity(desk.state, "T", 4)
    assert found(desk) == []


def test_names_are_counted_in_all_pools(desk: Desk, handle: Handle) -> None:
    desk.pool(2, "U")
    assert member_rows.count_in_pools(desk.state) == 6


def test_those_that_others_may_pass_are_known(desk: Desk, handle: Handle) -> None:
    queues = LocalQueues(desk.state, lost=lambda *_: None, clock=desk.time.clock)
    with desk.state.transaction():
        (ticket,) = queues.in_order("T")
        suspend(queues, "T", ticket)
        (passed,) = audit.suspended_tickets(desk.state)  # before it hears of that and looks
    assert passed == Suspended("T", f"job/1/host/{ticket.claim_key}", this_process())


def test_a_pool_is_used_by_who_holds_and_who_waits(desk: Desk, handle: Handle) -> None:
    for pool_type in ("V", "U", "W"):
        desk.pool(1, pool_type)
    desk.acquire(Request("W"))
    assert audit.unused_pools(desk.state) == ["U", "V"]
    change(desk, "DELETE FROM ticket WHERE type = 'T'")
    change(desk, "UPDATE resource SET owner = NULL, closed = 0 WHERE type = 'T'")
    assert audit.unused_pools(desk.state) == ["T", "U", "V"]
