"""leasectl.engines.local.notes: who hears of a note at a claim of an embedded pool."""

from __future__ import annotations

import pytest

from leasectl.engines.local.notes import noted
from leasectl.engines.notes import Note, NoteChange
from leasectl.model import Handle, Request
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


def test_the_keeper_is_called_for_what_was_noted_alone(
    desk: Desk, handle: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[object] = []
    monkeypatch.setattr(keeper_process, "wake", called.append)
    assert not change(desk, handle, "again", before="marked")
    assert called == []
    assert change(desk, handle, "marked")
    assert called == [desk.state]
