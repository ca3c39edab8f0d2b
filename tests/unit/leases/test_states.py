"""docs/dev/lease-states.md: each row of its tables is what the code does to a record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from leasectl.leases.acquire import announce, take_back, undo
from leasectl.leases.journal import RecordJournal, remote_lease
from leasectl.leases.recovery import release_abandoned
from leasectl.leases.release import arm, finish, release
from leasectl.leases.request import new_handle
from leasectl.leases.service import Service
from leasectl.model import Handle, Process, Request, whole
from leasectl.system.process import this_process
from tests.kit.desk import Desk
from tests.kit.made_up_server import NAMES, URL, Server

PAGE = Path(__file__).parents[3] / "docs" / "dev" / "lease-states.md"
ID = "T-1"


def rows() -> Iterator[tuple[str, str, str]]:
    """Step, state before and state after of each row."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and not line.startswith("| step"):
            step, before, after, *_ = (each.strip() for each in line.strip("|").split("|"))
            yield step, before, after


def state_of(service: Service) -> str:
    record = service.handles.load(ID)
    if record is None:
        return "none"
    state: str = record.state if record.state != "held" else "announced"
    if record.state == "held" and record.waiter is not None:
        state = "granted" if record.waiter == this_process() else "granted by the dead"
    if record.state == "acquiring" and record.waiter != this_process():
        state = "acquiring elsewhere"
    if record.acquisition > 1 and state in ("acquiring", "granted"):
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


@pytest.mark.parametrize(("step", "before", "after"), rows())
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
