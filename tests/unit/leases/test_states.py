"""docs/dev/lease-states.md: each row of its tables is what the code does to a record."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest

from leasectl.backends.contract import Patience, Progress
from leasectl.engines.notes import NoteChange
from leasectl.errors import BackendUnreachable, LeaseLost, NoLease, NotAllowed
from leasectl.leases import acquire as acquire_module
from leasectl.leases.acquire import (
    acquire,
    acquire_served,
    announce,
    reacquire,
    take_back,
    turn,
    undo,
)
from leasectl.leases.journal import RecordJournal, remote_lease
from leasectl.leases.marks import answer, encode_mark, new_mark
from leasectl.leases.recovery import is_abandoned, release_abandoned
from leasectl.leases.release import arm, finish, release
from leasectl.leases.release_forced import release_by_force
from leasectl.leases.renew import renew
from leasectl.leases.request import new_handle
from leasectl.leases.service import Service
from leasectl.model import Handle, Process, Request, whole
from leasectl.pools import joining
from leasectl.system.poll import sleep_through
from leasectl.system.process import this_process
from tests.kit.desk import Desk
from tests.kit.made_up_server import NAMES, URL, Server
from tests.kit.made_up_store import MadeUpWaiter

PAGE = Path(__file__).parents[3] / "docs" / "dev" / "lease-states.md"
ID = "T-1"
NO_WAIT = Patience(wait_seconds=0)


def rows(*, of_roads: bool = False) -> Iterator[list[str]]:
    """The fields of each row, of the roads or of the tables of steps."""
    steps, roads = PAGE.read_text(encoding="utf-8").split("## Roads")
    for line in (roads if of_roads else steps).splitlines():
        if line.startswith("| ") and not line.startswith(("| step", "| road")):
            yield [each.strip() for each in line[1:-1].split("|")]


def state_of(service: Service) -> str:
    record = service.handles.load(ID)
    if record is None:
        return "none"
    state: str = record.state if record.state != "held" else "announced"
    if record.state == "held" and record.waiter is not None:
        state = "granted" if record.waiter == this_process() else "granted by the dead"
    if record.state == "acquiring" and record.waiter != this_process():
        state = "acquiring elsewhere"
    if record.acquisition > 1 and not record.served and state in ("acquiring", "granted"):
        state += " again"
    is_due = bool(service.handles.timers.due(service.clock.elapsed()))
    is_cancelled = record.cancelled and record.state == "acquiring"
    facts = ("due", is_due), ("lost", record.lost), ("cancelled", is_cancelled)
    return ", ".join([state, *(name for name, is_so in facts if is_so)])


class Record:
    """A record that is brought into a state, and takes a step from there."""

    def __init__(self, service: Service, alive: Process, dead: Process) -> None:
        self.service = service
        self.alive, self.dead = alive, dead
        self.journal = RecordJournal(service, new_handle(service, Request("T", 2), ID))

    @property
    def handle(self) -> Handle:
        return self.service.handles.require(ID)

    def bring_to(self, state: str) -> None:
        if state == "none":
            return
        self.journal.enqueuing()
        if state == "acquiring elsewhere":
            self.let_wait(self.alive)
        if state.startswith("acquiring") and not state.endswith("again"):
            return
        self.grant()
        if state == "granted by the dead":
            self.let_wait(self.dead)
        if state in ("announced", "released, lost"):
            announce(self.service, self.handle)
        if state == "released, lost":
            self.lose()
        if state == "released" or state.endswith("again"):
            release(self.service, whole(self.handle))
        if state.endswith("again"):
            self.begin_again()
        if state == "granted again":
            self.grant()

    def let_wait(self, process: Process) -> None:
        with self.service.state.transaction() as db:
            db.execute("UPDATE handle SET waiter = ?", (process.encode(),))

    def grant(self) -> None:
        handle = self.journal.handle
        self.journal.granted([remote_lease(handle, name, 0.0) for name in NAMES[:2]])

    def begin_again(self) -> None:
        self.journal = RecordJournal(self.service, self.handle, again=lambda _: None)
        self.journal.enqueuing()

    def lose(self) -> None:
        with self.service.state.transaction():
            self.service.losses.note_gone(self.handle, self.handle.names)

    def enqueue(self) -> None:
        if self.service.handles.load(ID) is None:
            self.journal.enqueuing()
        else:
            self.begin_again()

    def give_back_what_arrived(self) -> None:
        self.journal.arrived(NAMES[0])
        self.journal.returning(NAMES[0])
        self.journal.returned(NAMES[0])
        assert self.handle.names == ()

    def release_a_name(self) -> None:
        release(self.service, whole(self.handle)._replace(names=NAMES[:1]))
        assert self.handle.names == NAMES[1:2]

    def take(self, step: str) -> None:
        service = self.service
        steps: dict[str, Callable[[], object]] = {
            "enqueuing": self.enqueue,
            "arrived": lambda: self.journal.arrived(NAMES[0]),
            "returned": self.give_back_what_arrived,
            "granted": self.grant,
            "announce": lambda: announce(service, self.handle),
            "gave up": self.journal.gave_up,
            "left to the keeper": self.journal.leave_to_keeper,
            "undo": lambda: undo(service, self.journal, why=""),
            "take back": lambda: take_back(service, self.handle),
            "release": lambda: release(service, whole(self.handle)),
            "release of a name": self.release_a_name,
            "finish": lambda: finish(service, self.handle),
            "arm": lambda: arm(service, whole(self.handle), 0.0),
            "lost": self.lose,
            "recover": lambda: release_abandoned(service),
        }
        steps[step]()


@pytest.mark.parametrize(("step", "before", "after"), [each[:3] for each in rows()])
@pytest.mark.parametrize("url", ["local:", URL])
def test_step_leads_to_the_state_that_the_page_says(
    desk: Desk,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    alive: Process,
    url: str,
    step: str,
    before: str,
    after: str,
) -> None:
    monkeypatch.setattr(server, "release", lambda key, names, **_: iter(names))
    dead = this_process()._replace(start_time=1)
    record = Record(desk.as_caller(desk.caller, url), alive, dead)
    if url == "local:" and before == "acquiring elsewhere":
        after = "released"  # whoever waits finds its ticket gone
    if url != "local:" and step == "recover":
        after = before  # it is left to the keeper, as a server may be slow
    record.bring_to(before)
    assert state_of(record.service) == before
    record.take(step)
    assert state_of(record.service) == after


class Road:
    """One way to a lease or from it; notes each state in which a transaction leaves its record."""

    def __init__(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        self.service = service
        self._patch = monkeypatch
        self.states = ["none"]
        self._depth = 0
        self._transaction = service.state.transaction
        monkeypatch.setattr(service.state, "transaction", self._noting)
        for module in (acquire_module, joining):
            monkeypatch.setattr(module, "new_id", lambda _: ID)

    @contextlib.contextmanager
    def _noting(self) -> Iterator[Any]:
        self._depth += 1
        try:
            with self._transaction() as db:
                yield db
        finally:
            self._depth -= 1
        if not self._depth and (state := state_of(self.service)) != self.states[-1]:
            self.states.append(state)

    def acquire(self, *types: str, **wanted: Any) -> Handle:
        first, *others = types or ("T",)
        request = Request(first, other_types=tuple(others), **wanted)
        return acquire(self.service, request, patience=NO_WAIT)

    def hold(self, count: int = 1, **how: Any) -> Handle:
        announce(self.service, self.acquire(count=count), **how)
        self.states.clear()
        self.states.append("announced")
        return self.service.handles.require(ID)

    def serve(self) -> None:
        if self.service.kind.remote:
            acquire_served(self.service, Request("T"), handle_id=ID, patience=NO_WAIT)
        else:
            steps = turn(self.service, Request("T"), handle_id=ID, patience=NO_WAIT)
            sleep_through(steps, interrupts=(), now=self.service.clock.elapsed)
        announce(self.service, self.service.handles.require(ID))

    def join(self) -> None:
        joining.hold(self.service, "T", "n", lives=None, tell=lambda _: None)

    def acquire_again(self) -> None:
        self.hold()
        announce(self.service, reacquire(self.service, ID, patience=NO_WAIT))

    def take_all(self) -> Handle:
        return acquire(self.service, Request("T", 3), patience=NO_WAIT, handle_id="T-0")

    def wait(self) -> None:
        other = self.take_all()

        def give_back(_: Progress) -> None:
            release(self.service, whole(other))

        waits = Patience(report=give_back)
        announce(self.service, acquire(self.service, Request("T"), patience=waits))

    def wait_in_vain(self) -> None:
        self.take_all()
        with pytest.raises(NoLease):
            self.acquire()

    def lose_answer(self) -> None:
        def claim(waiter: MadeUpWaiter) -> None:
            claimed(waiter)
            raise BackendUnreachable("the answer was lost")

        claimed = MadeUpWaiter.claim
        self._patch.setattr(MadeUpWaiter, "claim", claim)
        with pytest.raises(BackendUnreachable):
            self.acquire()

    def fail_to_tell(self) -> None:
        take_back(self.service, self.acquire())

    def release_one(self) -> None:
        handle = self.hold(2)
        release(self.service, whole(handle)._replace(names=handle.names[:1]))
        release(self.service, whole(handle))

    def release_later(self) -> None:
        handle = whole(self.hold())
        arm(self.service, handle, 0.0)
        release(self.service, handle)

    def force(self) -> None:
        handle = self.hold()
        release_by_force(self.service, handle.names, reason="")
        self.renew(handle)

    def renew(self, handle: Handle) -> None:
        """Have the holder find out what was taken."""
        with pytest.raises((LeaseLost, NotAllowed)):
            renew(self.service, whole(handle))

    def reclaim(self) -> None:
        handle = self.hold()
        (lease,), mark = handle.leases, encode_mark(new_mark("ops", seconds=60.0, now=0.0))
        put = NoteChange("T", lease.name, lease.fence, None, mark)
        assert self.service.notes.change([put]) == (True,)
        assert answer(self.service, whole(handle), "ready") == handle.names
        notes = self.service.notes.of_pool("T")
        assert self.service.notes.free(notes, by="reclaim") == handle.names
        self.renew(handle)

    def die(self) -> None:
        handle = self.hold(guard=this_process()._replace(start_time=1))
        if self.service.kind.remote:  # as the keeper does
            assert is_abandoned(self.service, handle)
            release(self.service, whole(handle, by="guard"))
        release_abandoned(self.service)


ROADS: dict[str, Callable[[Road], object]] = {
    "acquire": lambda road: announce(road.service, road.acquire()),
    "acquire after a wait": Road.wait,
    "acquire several": lambda road: announce(road.service, road.acquire(count=2)),
    "acquire from either pool": lambda road: announce(road.service, road.acquire("T", "U")),
    "acquire from each pool": lambda road: announce(
        road.service, road.acquire("T", "U", needs_all=True)
    ),
    "client of serve": Road.serve,
    "join and hold": Road.join,
    "reacquire": Road.acquire_again,
    "no lease in time": Road.wait_in_vain,
    "the caller can't be told": Road.fail_to_tell,
    "a lost answer": Road.lose_answer,
    "release": lambda road: release(road.service, whole(road.hold())),
    "release of one, then of the other": Road.release_one,
    "delayed release": Road.release_later,
    "end of the library's block": lambda road: finish(road.service, road.hold()),
    "release by force": Road.force,
    "reclaim": Road.reclaim,
    "death of the guard": Road.die,
}


def on_each_backend() -> Iterator[tuple[str, str, str]]:
    """Road, URL and states."""
    for road, here, there in rows(of_roads=True):
        if here:
            yield road, "local:", here
        yield road, URL, here if there == "the same" else there


@pytest.mark.parametrize(("road", "url", "states"), on_each_backend())
def test_road_passes_through_the_states_that_the_page_says(
    desk: Desk, server: Server, monkeypatch: pytest.MonkeyPatch, road: str, url: str, states: str
) -> None:
    pools = server.pools if url == URL else desk.service.pools
    if url != URL:
        desk.pool(3)
    pools.create_pool("U", ["U--00"])
    taken = Road(desk.as_caller(desk.caller, url), monkeypatch)
    ROADS[road](taken)
    assert " → ".join(taken.states) == states


def test_the_page_has_each_road() -> None:
    assert [road for road, *_ in rows(of_roads=True)] == [*ROADS]
