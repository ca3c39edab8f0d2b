"""Pools and records are looked at as of one instant, without the lock that writers queue for."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.engines.local.absent import remove_dead_ones
from leasectl.engines.local.standing import standing_of
from leasectl.engines.local.store import LocalStore
from leasectl.engines.local.witness import LocalWitness
from leasectl.errors import NotFound
from leasectl.leases.release import release
from leasectl.leases.request import new_handle
from leasectl.model import Request, whole
from leasectl.pools import admin
from leasectl.state.names_files import NamesFiles
from leasectl.state.reads import snapshot
from leasectl.system.process import this_process
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk
from tests.kit.pool_changes import add_resources
from tests.kit.waits import result_of


@contextlib.contextmanager
def locked_by_another(directory: Path) -> Iterator[None]:
    """As by a process that was stopped in the middle of a transaction."""
    with open(directory / "state.lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_who_looks_needs_no_lock_as_long_as_nothing_is_over(desk: Desk) -> None:
    desk.pool(2)
    handle = desk.acquire(Request("T", ttl_seconds=100))
    desk.acquire()
    waiting = desk.acquire_beside()
    with locked_by_another(desk.directory):
        (seen,) = admin.look(desk.service).pools
        (shown,) = admin.overview(desk.service).pools
    assert (seen.held, len(seen.queue)) == (shown.held, len(shown.queue)) == (2, 1)
    release(desk.service, whole(handle))
    result_of(waiting)


def test_how_things_stand_for_a_waiter_is_told_without_it_and_of_what_has_not_expired(
    desk: Desk,
) -> None:
    desk.pool(3)
    store = LocalStore(desk.state, lost=lambda *_: None, clock=desk.time.clock)
    desk.acquire(Request("T", ttl_seconds=9.0))
    desk.time.advance(1)
    second = desk.acquire()
    desk.time.advance(8)
    with locked_by_another(desk.directory):
        found = standing_of(store, Request("T"), 1)
    assert found[1:5] == (0, 1, 3, second.holder_identity), found


def test_pools_and_records_are_of_one_instant(desk: Desk) -> None:
    desk.pool(1)
    handle = desk.acquire()
    with desk.service.pools.looking():
        before = desk.service.pools.pools("T")
        result_of(desk.beside(lambda service: release(service, whole(handle))))
        assert desk.service.pools.pools("T") == before
        assert [each.id for each in desk.service.handles.active()] == [handle.id]
    assert desk.service.pools.pools("T")[0].held == 0
    assert desk.service.handles.active() == []


def test_a_look_inside_a_transaction_is_of_what_that_has_done(desk: Desk) -> None:
    desk.pool(1)
    with desk.state.transaction(), snapshot(desk.state):
        add_resources(desk.service.members, "T", ["more"])
        assert desk.service.pools.pools("T")[0].capacity == 2
    assert desk.service.pools.pools("T")[0].capacity == 2


def test_a_look_that_fails_is_over(desk: Desk) -> None:
    with pytest.raises(LookupError), snapshot(desk.state):
        desk.state.query("SELECT 1 FROM pool")
        raise LookupError
    desk.pool(1)  # would fail inside of one


def test_whose_ticket_went_after_it_was_found_dead_is_left_alone(desk: Desk) -> None:
    """It is found without the lock: by the transaction, its record may have another ticket."""
    desk.pool(1)
    handle = desk.acquire()
    waiting = desk.acquire_beside()
    store = LocalStore(desk.state, lost=lambda key, names: None, clock=desk.time.clock)
    with contextlib.closing(store.queues.in_order("T")) as tickets:
        (found,) = tickets
    found.pipe = "of-another-waiter"
    with desk.state.transaction():
        remove_dead_ones(store.queues, "T", [found])
    assert desk.tickets() == [found.number]
    release(desk.service, whole(handle))
    assert result_of(waiting).names == ("T--00",)


def dead_waiters(desk: Desk, pool_type: str, number: int) -> None:
    """Have so many wait, of a process whose pid another has by now."""
    process = this_process()._replace(start_time=1)
    with desk.state.transaction() as db:
        ((last,),) = desk.state.query("SELECT last_ticket FROM pool WHERE type = ?", pool_type)
        for ticket in range(last + 1, last + number + 1):
            handle = new_handle(desk.service, Request(pool_type), f"{pool_type}-{ticket:06}")
            desk.service.handles.create(handle._replace(waiter=process), remote=False, now=0.0)
            row = (pool_type, ticket, handle.id, handle.holder_identity, 1, 0.0, process.encode())
            db.execute("INSERT INTO ticket VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, f"w{ticket}"))
        db.execute("UPDATE pool SET last_ticket = ? WHERE type = ?", (last + number, pool_type))


def steps_past_the_dead(desk: Desk, pool_type: str, number: int) -> int:
    """What SQLite does, in thousands of its steps, for who finds so many dead before itself."""
    desk.pool(1, pool_type=pool_type)
    dead_waiters(desk, pool_type, number)
    steps = []
    desk.state.db.set_progress_handler(lambda: steps.append(1), 1000)
    desk.acquire(Request(pool_type))
    desk.state.db.set_progress_handler(None, 0)
    passed = desk.state.query("SELECT number FROM suspended WHERE type = ?", pool_type)
    assert 0 < len(passed) < number
    admin.look(desk.service)
    assert desk.tickets() == []
    told = list(desk.service.events.read())
    gave_up = [each.ticket for each in told if each.kind == "gave up" and each.type == pool_type]
    assert sorted(gave_up) == list(range(1, number + 1))
    return len(steps)


def test_each_of_many_dead_waiters_takes_as_much_as_each_of_few(desk: Desk) -> None:
    few, many = (steps_past_the_dead(desk, f"T{number}", number) for number in (100, 2000))
    assert many < few * 40  # were all looked at for each, it would be 400


def test_who_lives_among_many_dead_comes_before_who_came_later(desk: Desk) -> None:
    desk.pool(1)
    holder = desk.acquire()
    dead_waiters(desk, "T", 40)
    first = desk.acquire_beside()
    dead_waiters(desk, "T", 40)
    second = desk.acquire_beside()
    assert not first.done()
    release(desk.service, whole(holder))
    had = result_of(first)
    assert not second.done()
    release(desk.service, whole(had))
    result_of(second)


def test_of_many_dead_whom_others_pass_each_64th_ticket_takes_some_away(desk: Desk) -> None:
    desk.pool(1)
    dead_waiters(desk, "T", 300)
    for _ in range(5 * 64):
        release(desk.service, whole(desk.acquire()))
    assert desk.tickets() == []
    assert desk.state.query("SELECT * FROM suspended") == []


def test_the_witness_takes_away_many_whom_others_pass_in_parts(desk: Desk) -> None:
    desk.pool(1)
    dead_waiters(desk, "T", 300)
    desk.acquire()
    witness = LocalWitness(desk.state, lost=desk.service.losses.tell, clock=desk.time.clock)
    left = [len(desk.tickets())]
    while left[-1]:
        assert witness.look() == []
        left.append(len(desk.tickets()))
        due = witness.due()
        is_called_again = due is not None
        assert due is None or 0 < due - desk.time.clock.elapsed() < 1  # others have the lock first
        assert is_called_again == (left[-2] - left[-1] == 128)
    parts = [before - after for before, after in zip(left, left[1:])]
    assert len(parts) == 3
    assert max(parts) == 128
    assert [each.state for each in desk.service.handles.active()] == ["held"]


def test_a_names_file_that_a_killed_process_left_half_way_is_put_right(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.pool(1)
    handle = desk.acquire()

    def be_killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(NamesFiles, "_put_in_place", be_killed)  # right after the commit
        release(desk.service, whole(handle))
    path = Path(desk.state.names_path(handle.id))
    assert path.read_text() == "T--00"
    admin.overview(desk.service)
    assert path.read_text() == ""


def test_of_one_pool_only_what_is_over_there_is_taken_away(desk: Desk) -> None:
    for pool_type in ("T", "U"):
        desk.pool(1, pool_type)
        desk.acquire(Request(pool_type, ttl_seconds=10.0))
        dead_waiters(desk, pool_type, 2)
    desk.time.advance(10)
    (pool,) = desk.service.pools.pools("T")
    assert (pool.type, pool.held, pool.queue) == ("T", 0, ())
    assert list(desk.held()) == ["U--00"]
    assert len(desk.tickets()) == 2
    with pytest.raises(NotFound):
        desk.service.pools.pools("V")
