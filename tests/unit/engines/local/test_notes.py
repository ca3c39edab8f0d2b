"""leasectl.engines.local.notes: who hears of a note at a claim of an embedded pool."""

from __future__ import annotations

import pytest

from leasectl.engines.local.notes import noted
from leasectl.engines.notes import Note, NoteChange
from leasectl.engines.rules.membership import cordon
from leasectl.leases.release import release
from leasectl.model import Handle, Request, whole
from leasectl.state import keeper_process
from leasectl.state.event import ALL_EVENTS
from leasectl.state.named_pipe import NamedPipe
from leasectl.system.poll import is_readable
from leasectl.system.process import this_process
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk
from tests.kit.recorded import watched
from tests.kit.waits import wait_readable


@pytest.fixture
def handle(desk: Desk) -> Handle:
    """Holds one of two."""
    desk.pool(2)
    return desk.acquire()


def change(
    desk: Desk, handle: Handle, after: str | None, *, before: str | None = None, told: str = ""
) -> bool:
    (lease,) = handle.leases
    changes = [NoteChange("T", lease.name, lease.fence, before, after, told)]
    (is_done,) = desk.service.notes.change(changes)
    return is_done


def test_who_follows_the_pool_and_the_holders_run_are_woken(desk: Desk, handle: Handle) -> None:
    watch = desk.service.notes.watch("T")
    runner = NamedPipe(desk.state.runner_pipe(handle.id))
    assert not is_readable(watch.fd, 0)
    assert change(desk, handle, "marked")
    wait_readable(watch.fd)
    wait_readable(runner.fd)
    watch.close()
    runner.close()


def test_the_keeper_sees_to_its_holder_from_then_on(desk: Desk, handle: Handle) -> None:
    assert watched(desk.state) == []
    assert not change(desk, handle, "again", before="marked")  # nothing is noted
    assert watched(desk.state) == []
    assert change(desk, handle, "marked")
    assert [each.id for each in watched(desk.state)] == [handle.id]
    assert noted(desk.state) == {handle.id: (Note("T", "T--00", 1, "marked"),)}
    assert change(desk, handle, None, before="marked")
    assert noted(desk.state) == {}


def test_it_is_told_with_all_that_is_known_of_the_claim(desk: Desk, handle: Handle) -> None:
    assert change(desk, handle, "silent")
    assert change(desk, handle, "marked", before="silent", told="asked for")
    (event,) = [each for each in desk.service.events.read(ALL_EVENTS) if each.kind == "noted"]
    (lease,) = handle.leases
    assert (event.names, event.fences, event.reason) == (("T--00",), (1,), "asked for")
    whose = (event.handle, event.acquisition, event.holder_identity)
    assert whose == (handle.id, 1, handle.holder_identity)
    assert (event.count, event.ticket, event.grant) == (1, lease.ticket, lease.grant)


def test_what_has_run_out_or_was_released_is_noted_no_more(desk: Desk, handle: Handle) -> None:
    short = desk.acquire(Request("T", ttl_seconds=60.0), guard=this_process())
    assert change(desk, short, "marked")
    assert len(desk.service.notes.of_pool("T")) == 1
    assert len(desk.service.notes.of_claims(short.id)) == 1
    desk.time.advance(60.0)
    assert desk.service.notes.of_claims(short.id) == ()
    assert desk.service.notes.of_pool("T") == ()
    assert not change(desk, short, "again", before="marked")


def test_what_is_noted_just_so_is_freed_and_off_its_record(desk: Desk, handle: Handle) -> None:
    (lease,) = handle.leases
    assert change(desk, handle, "ready")
    note = Note("T", lease.name, lease.fence, "ready")
    notes = desk.service.notes
    assert notes.free([note._replace(text="marked")], by="reclaim") == ()
    assert notes.free([note._replace(fence=2), note, note], by="reclaim") == ("T--00",)
    assert desk.held() == {}
    assert desk.record(handle).names == ()


@pytest.mark.parametrize("way", ["of the pool", "of the claims", "changed", "freed"])
def test_at_what_has_run_out_nothing_is_noted_for_whoever_comes_first(
    desk: Desk, handle: Handle, way: str
) -> None:
    """Nobody has freed it yet."""
    short = desk.acquire(Request("T", ttl_seconds=60.0), guard=this_process())
    assert change(desk, short, "marked")
    (note,) = desk.service.notes.of_pool("T")
    desk.time.advance(60.0)
    notes = desk.service.notes
    if way == "of the pool":
        assert notes.of_pool("T") == ()
    elif way == "of the claims":
        assert notes.of_claims(short.id) == ()
    elif way == "changed":
        assert not change(desk, short, "again", before="marked")
    else:
        assert notes.free([note], by="reclaim") == ()
    assert desk.held() == {"T--00": handle.id}


def test_at_what_was_ended_by_force_nothing_is_noted(desk: Desk, handle: Handle) -> None:
    assert change(desk, handle, "marked")
    desk.service.pools.end_early(handle.id, handle.names, guard=this_process(), reason="")
    assert not change(desk, handle, "again", before="marked")
    assert desk.service.notes.of_pool("T") == ()
    assert desk.service.notes.of_claims(handle.id) == ()
    assert list(noted(desk.state).values()) in ([], [()])


def test_at_what_nobody_may_have_nothing_is_noted(desk: Desk, handle: Handle) -> None:
    """Its fence is the last holder's."""
    assert change(desk, handle, "marked")
    release(desk.service, whole(handle))
    assert not change(desk, handle, "again", before="marked")
    desk.service.members.update(["T--00"], lambda each, _: cordon(each, is_cordoned=True))
    assert not change(desk, handle, "again", before="marked")
    assert desk.service.notes.of_pool("T") == ()
    assert noted(desk.state) == {}


@pytest.mark.parametrize("what", ["name", "fence", "pool"])
def test_of_another_claim_nothing_is_noted(desk: Desk, handle: Handle, what: str) -> None:
    desk.pool(1, "U")
    change = NoteChange("T", "T--00", 1, None, "marked", "")
    other = {
        "name": change._replace(name="T--01"),
        "fence": change._replace(fence=2),
        "pool": change._replace(type="U"),
    }
    # Of several, each is done or not by itself.
    assert desk.service.notes.change([other[what], change]) == (False, True)
    assert desk.service.notes.of_pool("U") == ()
    assert desk.service.notes.of_pool("T") == (Note("T", "T--00", 1, "marked"),)


def test_of_what_nothing_is_on_record_as_much_is_told_as_is_seen(
    desk: Desk, handle: Handle
) -> None:
    with desk.state.transaction() as db:
        db.execute("DELETE FROM handle")
        db.execute("UPDATE resource SET ticket = NULL, grant_number = NULL, holder_identity = NULL")
    assert change(desk, handle, "marked", told="asked for")
    (event,) = [each for each in desk.service.events.read(ALL_EVENTS) if each.kind == "noted"]
    assert (event.handle, event.acquisition, event.holder_identity) == (handle.id, 0, "")
    assert (event.count, event.priority, event.ticket, event.grant) == (1, 0, 0, 0)


def test_what_is_asked_for_is_told_as_well(desk: Desk) -> None:
    desk.pool(3)
    handle = desk.acquire(Request("T", 2, priority=7))
    first = handle.leases[0]
    changes = [NoteChange("T", first.name, first.fence, None, "marked", "asked for")]
    assert desk.service.notes.change(changes) == (True,)
    (event,) = [each for each in desk.service.events.read(ALL_EVENTS) if each.kind == "noted"]
    assert (event.count, event.priority, event.time) == (2, 7, desk.time.clock.wall())


def test_the_keeper_is_called_for_what_was_noted_alone(
    desk: Desk, handle: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[object] = []
    monkeypatch.setattr(keeper_process, "wake", called.append)
    assert not change(desk, handle, "again", before="marked")
    assert called == []
    assert change(desk, handle, "marked")
    assert called == [desk.state]
