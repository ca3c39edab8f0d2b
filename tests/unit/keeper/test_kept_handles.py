"""What the keeper knows of the handles that it sees to, and what it takes to know that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Callable

import pytest

from leasectl.errors import CorruptState
from leasectl.keeper.handles import KeptHandles
from leasectl.keeper.job import key_of
from leasectl.keeper.log import Log
from leasectl.keeper.rounds import Rounds
from leasectl.leases.acquire import announce
from leasectl.leases.release import release
from leasectl.model import Handle, Process, Request, whole
from leasectl.state.directory import State
from leasectl.system import process
from leasectl.system.process import identify, this_process
from leasectl.system.process_watch import ProcessEnds
from tests.kit.desk import Desk
from tests.kit.forking import child as child
from tests.kit.forking import kill

TTL = 30.0


@pytest.fixture
def ends() -> Iterator[ProcessEnds]:
    ends = ProcessEnds(100)
    yield ends
    ends.close()


@pytest.fixture
def kept(desk: Desk, ends: ProcessEnds) -> KeptHandles:
    desk.pool(40)
    return KeptHandles(desk.state, ends)


def guarded(desk: Desk, guard: Process | None = None, *, ttl: float | None = None) -> Handle:
    return desk.acquire(Request("T", ttl_seconds=ttl), guard=guard or this_process())


class TestWhoseTtlIsItsBusiness:
    @pytest.fixture
    def is_renewed(self, desk: Desk, kept: KeptHandles) -> Callable[[Handle], bool]:
        def is_renewed(handle: Handle) -> bool:
            kept.look()
            known = kept.take_changed().get(handle.id)
            return known is not None and kept.to_renew(known)

        return is_renewed

    def test_that_of_a_handle_with_a_ttl_and_no_run(
        self, desk: Desk, is_renewed: Callable[[Handle], bool]
    ) -> None:
        handle = guarded(desk, ttl=TTL)
        assert is_renewed(handle)
        release(desk.service, whole(handle))
        assert not is_renewed(handle)

    def test_not_without_a_ttl(self, desk: Desk, is_renewed: Callable[[Handle], bool]) -> None:
        assert not is_renewed(guarded(desk))

    def test_not_that_of_a_guard_that_another_keeper_sees(
        self, desk: Desk, is_renewed: Callable[[Handle], bool]
    ) -> None:
        elsewhere = this_process()._replace(pid_namespace=1)
        assert not is_renewed(guarded(desk, elsewhere, ttl=TTL))

    def test_not_in_scope_test(self, desk: Desk, is_renewed: Callable[[Handle], bool]) -> None:
        handle = guarded(desk, ttl=TTL)
        desk.state.db.execute("UPDATE handle SET scope = 'test' WHERE id = ?", (handle.id,))
        assert not is_renewed(handle)

    def test_that_of_a_run_only_once_that_has_died(
        self, desk: Desk, is_renewed: Callable[[Handle], bool], child: Process
    ) -> None:
        handle = guarded(desk, ttl=TTL)
        announce(desk.service, handle, runner=child)
        assert not is_renewed(handle)
        kill(child)
        assert is_renewed(handle)


class TestWhatItReads:
    def test_one_that_cant_be_read_is_read_again(self, desk: Desk, kept: KeptHandles) -> None:
        handle = guarded(desk)
        kept.look()
        guard = this_process().encode()
        desk.state.db.execute("UPDATE handle SET guard = 'nonsense' WHERE id = ?", (handle.id,))
        for _ in range(2):
            kept.look()
            with pytest.raises(CorruptState, match="bad record"):
                kept.check()
        desk.state.db.execute("UPDATE handle SET guard = ? WHERE id = ?", (guard, handle.id))
        kept.look()
        kept.check()
        assert key_of(handle) in kept

    def test_who_was_away_for_long_reads_all_again(self, desk: Desk, ends: ProcessEnds) -> None:
        desk.pool(3)
        late, other = KeptHandles(desk.state, ends), KeptHandles(desk.state, ends)
        gone, stays = guarded(desk), guarded(desk)
        for each in (late, other):
            each.look()
        release(desk.service, whole(gone))
        for _ in range(2100):
            desk.state.db.execute("UPDATE handle SET guard = guard WHERE id = ?", (stays.id,))
        other.look()
        other.trim()
        ((left,),) = desk.state.query("SELECT count(*) FROM handle_change")
        assert left == 1000
        assert late.look()
        assert key_of(gone) not in late
        assert key_of(stays) in late

    def test_a_change_that_is_undone_is_none(self, desk: Desk, kept: KeptHandles) -> None:
        handle = guarded(desk)
        kept.look()
        with pytest.raises(ZeroDivisionError), desk.state.transaction():
            desk.service.handles.release(handle, now=0.0)
            raise ZeroDivisionError
        assert not kept.look()
        assert desk.service.handles.watched() != []

    def test_what_a_round_takes_does_not_grow_with_the_handles(
        self, desk: Desk, ends: ProcessEnds, kept: KeptHandles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = desk.time.clock
        log = Log(str(desk.directory / "keeper.log"), clock)
        rounds = Rounds(desk.service, ends, log)
        looked_at: list[int] = []
        start_time = process._start_time

        def counted(pid: int) -> int | None:
            looked_at.append(pid)
            return start_time(pid)

        def cost() -> tuple[int, int]:
            rounds.go()
            looked_at.clear()
            return statements(desk.state, rounds.go), len(looked_at)

        def cost_of_a_change() -> tuple[int, int]:
            rounds.go()
            desk.state.db.execute(
                "UPDATE handle SET guard = ? WHERE id = ?", (other.encode(), first.id)
            )
            looked_at.clear()
            taken = statements(desk.state, rounds.go), len(looked_at)
            desk.state.db.execute(
                "UPDATE handle SET guard = ? WHERE id = ?", (this_process().encode(), first.id)
            )
            return taken

        other = identify(os.getppid())
        first = guarded(desk)
        monkeypatch.setattr(process, "_start_time", counted)
        few, few_changed = cost(), cost_of_a_change()
        for _ in range(30):
            guarded(desk)
        assert cost() == few
        assert few[1] == 0
        assert cost_of_a_change() == few_changed
        assert few_changed[1] <= 1


@pytest.mark.parametrize("number", [1, 2, 3])
def test_whoever_ends_at_whichever_look_of_a_round_is_not_left_for_later(
    desk: Desk, ends: ProcessEnds, child: Process, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    desk.pool(1)
    clock = desk.time.clock
    rounds = Rounds(desk.service, ends, Log(str(desk.directory / "log"), clock))
    handle = guarded(desk, child)
    rounds.go()
    looks = 0
    look = KeptHandles.look

    def counted(kept: KeptHandles) -> bool:
        nonlocal looks
        looks += 1
        if looks == number:
            kill(child)
        return look(kept)

    monkeypatch.setattr(KeptHandles, "look", counted)
    while (due := rounds.go()) is not None and due <= clock.elapsed():
        pass
    assert looks >= 3
    assert desk.service.handles.require(handle.id).state == "released"


def statements(state: State, act: Callable[[], object]) -> int:
    """How many statements an act takes."""
    seen: list[str] = []
    state.db.set_trace_callback(seen.append)
    try:
        act()
    finally:
        state.db.set_trace_callback(None)
    return len(seen)
