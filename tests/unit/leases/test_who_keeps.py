"""When a verb starts the keeper, and when it is enough to wake the one that is there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any, Callable

import pytest

from leasectl.backends.contract import Patience
from leasectl.errors import BackendUnreachable, LeaseError, NoLease
from leasectl.leases.acquire import acquire, acquire_served, announce, heedful, turn
from leasectl.leases.journal import RecordJournal
from leasectl.leases.recovery import due
from leasectl.leases.release import arm, leave_failed, release
from leasectl.leases.request import new_handle
from leasectl.leases.service import Service
from leasectl.model import Claimant, Handle, Process, Request, whole
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.state.named_pipe import NamedPipe
from leasectl.system.poll import is_readable
from leasectl.system.process import own_pid_namespace, this_process
from tests.kit.desk import Desk
from tests.kit.made_up_server import URL, Server

# As they are: a desk has no keeper started.
_ENSURE, _WAKE = keeper_process.ensure, keeper_process.wake
_NO_PID = 1 << 22  # larger than any


class Keeper:
    """Stands in for the one of a state directory.

    Attributes:
        is_there: Whether one lives.
        stays: Whether one that is started lives for long.
        wakes, starts: How often one was to be woken, and was started.
        look: Called when one is started, to see how things stand.
    """

    def __init__(self) -> None:
        self.is_there = False
        self.stays = True
        self.wakes = 0
        self.starts = 0
        self.look: Callable[[], object] = lambda: None

    def wake(self, state: State) -> None:
        self.wakes += 1
        _WAKE(state)

    def is_kept(self, _state: State) -> bool:
        return self.is_there

    def fork_candidate(self, _argv: Sequence[str]) -> tuple[int, int]:
        self.starts += 1
        self.look()
        self.is_there = self.stays
        return _NO_PID, os.open(os.devnull, os.O_RDONLY)


@pytest.fixture
def keeper(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Keeper:
    keeper = Keeper()
    monkeypatch.setattr(keeper_process, "wake", keeper.wake)
    monkeypatch.setattr(keeper_process, "ensure", _ENSURE)
    monkeypatch.setattr(keeper_process, "is_kept", keeper.is_kept)
    monkeypatch.setattr(keeper_process, "_fork_candidate", keeper.fork_candidate)
    desk.pool(2)
    return keeper


def granted(desk: Desk, *, guarded: bool = False) -> Handle:
    guard = this_process() if guarded else None
    return acquire(desk.service, Request("T"), patience=Patience(wait_seconds=0), guard=guard)


def register(desk: Desk, process: Process) -> None:
    """Have a process be the keeper, as far as anybody knows."""
    with desk.state.transaction() as db:
        row = (own_pid_namespace(), process.encode())
        db.execute("INSERT INTO keeper (pid_namespace, process, version) VALUES (?, ?, '9')", row)


class TestAnAcquisition:
    @pytest.mark.parametrize("is_a_clients", [False, True])
    def test_on_a_server_has_a_keeper_before_it_asks_for_anything(
        self, desk: Desk, keeper: Keeper, server: Server, is_a_clients: bool
    ) -> None:
        service, patience = desk.as_caller(desk.caller, URL), Patience(wait_seconds=0)
        seen: list[tuple[int, set[str]]] = []
        keeper.look = lambda: seen.append((server.pools.pools("T")[0].held, service.handles.ids()))
        if is_a_clients:
            acquire_served(service, Request("T"), handle_id="T-client", patience=patience)
        else:
            acquire(service, Request("T"), patience=patience)
        assert seen == [(0, set())]
        assert keeper.wakes == 1

    def test_whose_keeper_went_away_meanwhile_starts_another_with_its_record(
        self, desk: Desk, keeper: Keeper, server: Server
    ) -> None:
        service = desk.as_caller(desk.caller, URL)
        seen: list[tuple[int, int, bool]] = []

        def look() -> None:
            held, known = server.pools.pools("T")[0].held, len(service.handles.ids())
            seen.append((held, known, service.state.is_changing))

        keeper.look = look
        keeper.stays = False
        acquire(service, Request("T"), patience=Patience(wait_seconds=0))
        assert seen[:2] == [(0, 0, False), (0, 1, True)]


class TestAnAnnouncement:
    def test_of_a_guard_wakes_the_keeper_that_is_there(self, desk: Desk, keeper: Keeper) -> None:
        handle = granted(desk)
        keeper.is_there = True
        announce(desk.service, handle, guard=this_process())
        assert (keeper.wakes, keeper.starts) == (1, 0)

    def test_of_a_guard_starts_one_where_there_is_none(self, desk: Desk, keeper: Keeper) -> None:
        announce(desk.service, granted(desk), guard=this_process())
        assert (keeper.wakes, keeper.starts) == (1, 1)


class TestAWait:
    """For the embedded pool, behind others who may not come when they could."""

    @pytest.fixture
    def patience(self, desk: Desk) -> Patience:
        waiting = new_handle(desk.service, Request("T"), "T-waits")
        return heedful(desk.service, waiting, Patience(wait_seconds=5.0))

    def call(self, patience: Patience) -> Process | None:
        assert patience.see_to_witness is not None
        return patience.see_to_witness()

    @pytest.mark.parametrize("is_there", [True, False])
    def test_calls_a_keeper_which_is_started_where_there_is_none(
        self, desk: Desk, keeper: Keeper, patience: Patience, is_there: bool
    ) -> None:
        keeper.is_there = is_there
        with contextlib.closing(NamedPipe(desk.state.witness_pipe, shared=True)) as pipe:
            self.call(patience)
            assert is_readable(pipe.fd, 0)
        assert keeper.starts == (0 if is_there else 1)

    def test_goes_on_where_none_can_be_started(self, keeper: Keeper, patience: Patience) -> None:
        def look() -> None:
            raise LeaseError("no process could be forked")

        keeper.look = look
        assert self.call(patience) is None
        assert keeper.starts == 1

    def of_a_client(
        self, service: Service, patience: Patience, monkeypatch: pytest.MonkeyPatch
    ) -> Patience:
        """With which patience a client of a server is put in the queue."""
        seen: list[Patience] = []

        def wait(claimant: Claimant, journal: RecordJournal, patience: Patience) -> Iterator[Any]:
            seen.append(patience)
            yield from ()
            raise NoLease("as made up")

        with monkeypatch.context() as patch, pytest.raises(NoLease):
            patch.setattr(service.backend_at(service.backend_url, ""), "turn", wait)
            next(turn(service, Request("T"), handle_id="T-client", patience=patience))
        (found,) = seen
        return found

    def test_of_a_client_heeds_the_same_and_needs_no_descriptor_for_the_keeper(
        self, desk: Desk, keeper: Keeper, monkeypatch: pytest.MonkeyPatch, alive: Process
    ) -> None:
        patience = self.of_a_client(desk.service, Patience(wait_seconds=5.0), monkeypatch)
        assert patience.wait_seconds == 5.0
        granted(desk)
        assert list(patience.watched()) == [this_process()]
        assert self.call(patience) is None
        register(desk, alive)
        assert self.call(patience) == this_process()


class TestADelayedRelease:
    @pytest.fixture
    def handle(self, desk: Desk, keeper: Keeper) -> Handle:
        handle = granted(desk)
        announce(desk.service, handle)
        return handle

    @pytest.mark.parametrize("is_there", [True, False])
    def test_is_the_keepers(
        self, desk: Desk, keeper: Keeper, handle: Handle, is_there: bool
    ) -> None:
        keeper.is_there = is_there
        assert arm(desk.service, whole(handle), 10)
        assert (keeper.wakes, keeper.starts) == (1, 0 if is_there else 1)
        desk.time.advance(9.9)
        assert due(desk.service) == []
        desk.time.advance(0.1)
        assert due(desk.service) == [whole(handle, by="delay")]

    def test_of_what_goes_while_a_keeper_is_started_is_nobodys_either(
        self, desk: Desk, keeper: Keeper, handle: Handle
    ) -> None:
        keeper.look = lambda: release(desk.service, whole(handle))
        assert not arm(desk.service, whole(handle), 10)
        assert desk.record(handle).request.release_after_seconds is None
        assert desk.service.handles.timers.armed() == []


class TestAReleaseThatFailed:
    def service(self, desk: Desk) -> Service:
        return desk.as_caller(desk.caller, URL)

    def test_is_the_keepers_at_once_where_it_would_go_on_renewing(
        self, desk: Desk, keeper: Keeper, server: Server
    ) -> None:
        service = self.service(desk)
        handle = acquire(service, Request("T"), patience=Patience(wait_seconds=0))
        announce(service, handle)
        error = BackendUnreachable("no answer")
        leave_failed(service, whole(handle), error)
        assert "the keeper keeps trying" in str(error)
        assert due(service) == [whole(handle, by="delay")]
        assert service.handles.require(handle.id).request.release_after_seconds is None

    def test_is_not_where_the_lease_ends_by_itself(self, desk: Desk, keeper: Keeper) -> None:
        handle = granted(desk)
        announce(desk.service, handle)
        error = BackendUnreachable("no answer")
        leave_failed(desk.service, whole(handle), error)
        assert str(error) == "no answer"
        assert due(desk.service) == []
