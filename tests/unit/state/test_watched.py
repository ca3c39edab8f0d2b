"""leasectl.state.watched: what a keeper reads of handles that have changed."""

from __future__ import annotations

import re

import pytest

from leasectl.model import Handle, Request
from leasectl.state import watched
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.state.watched import Changes, WatchedHandles
from leasectl.system.process import this_process

US = this_process()


@pytest.fixture
def handles(state: State) -> Handles:
    return Handles(state)


@pytest.fixture
def keeper(state: State) -> WatchedHandles:
    return WatchedHandles(state)


def made(handles: Handles, state: State, handle_id: str, **fields: object) -> Handle:
    """One that is held, and is the keeper's because of its guard."""
    handle = Handle(
        id=handle_id,
        backend="local:",
        request=Request("T"),
        owner="job/1",
        holder_identity=f"job/1/host/{handle_id}",
        state="acquiring",
        acquisition=1,
        guard=US,
    )._replace(**fields)  # type: ignore[arg-type]
    with state.transaction():
        handles.create(handle, remote=False)
        handles.grant(handle, (), now=1.0)
    return handle


def test_at_first_all_are_read(state: State, handles: Handles, keeper: WatchedHandles) -> None:
    assert keeper.changes() == Changes({}, are_all=True)
    made(handles, state, "T-1", runner=US, acquisition=3)
    made(handles, state, "T-2", guard=None)  # which nobody sees to
    for each in (WatchedHandles(state), keeper):
        changes = each.changes()
        assert changes.are_all
        (found,) = changes.handles.values()
        assert found is not None
        assert (found.id, found.acquisition, found.state) == ("T-1", 3, "held")
        assert (found.guard, found.waiter, found.runner) == (US, None, US)


class TestTrimming:
    KEPT = 5

    @pytest.fixture(autouse=True)
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watched, "_KEPT", self.KEPT)

    def change(self, state: State, handle: Handle, times: int) -> None:
        for number in range(times):
            with state.transaction() as db:
                runner = US._replace(pid=number + 2).encode()
                db.execute("UPDATE handle SET runner = ? WHERE id = ?", (runner, handle.id))

    def notes(self, state: State) -> list[int]:
        return [n for (n,) in state.query("SELECT number FROM handle_change ORDER BY number")]

    def test_leaves_the_last_for_who_reads_from_there(
        self, state: State, handles: Handles, keeper: WatchedHandles
    ) -> None:
        other = WatchedHandles(state)
        handle = made(handles, state, "T-1")
        keeper.changes()
        self.change(state, handle, 2 * self.KEPT)
        other.changes()
        before = self.notes(state)
        keeper.trim()
        assert self.notes(state) == before  # it has not read those yet
        keeper.changes()
        keeper.trim()
        assert self.notes(state) == before[-self.KEPT :]
        self.change(state, handle, 1)
        for each in (keeper, other):
            assert each.changes() == Changes({"T-1": handles.load_watched("T-1")}, are_all=False)
        keeper.trim()
        assert len(self.notes(state)) == self.KEPT + 1  # not each time
        self.change(state, handle, self.KEPT - 1)
        keeper.changes()
        keeper.trim()
        assert len(self.notes(state)) == self.KEPT

    def test_that_fails_stops_nobody_and_is_done_the_next_time(
        self, state: State, handles: Handles, keeper: WatchedHandles
    ) -> None:
        handle = made(handles, state, "T-1")
        self.change(state, handle, 2 * self.KEPT)
        keeper.changes()
        state.db.execute(
            "CREATE TRIGGER none BEFORE DELETE ON handle_change BEGIN SELECT RAISE(FAIL, 'no'); END"
        )
        before = self.notes(state)
        keeper.trim()
        assert self.notes(state) == before
        state.db.execute("DROP TRIGGER none")
        keeper.trim()
        assert len(self.notes(state)) == self.KEPT

    def test_has_who_was_away_for_long_read_all_again(
        self, state: State, handles: Handles, keeper: WatchedHandles
    ) -> None:
        other = WatchedHandles(state)
        handle = made(handles, state, "T-1")
        other.changes()
        self.change(state, handle, 2 * self.KEPT)
        keeper.changes()
        keeper.trim()
        assert other.changes() == Changes({"T-1": handles.load_watched("T-1")}, are_all=True)


def change(state: State, handle_id: str, column: str, value: str) -> None:
    with state.transaction() as db:
        db.execute(f"UPDATE handle SET {column} = ? WHERE id = ?", (value, handle_id))


def test_a_damaged_record_is_left_out_and_read_with_the_next(
    state: State, handles: Handles, keeper: WatchedHandles
) -> None:
    made(handles, state, "T-1")
    made(handles, state, "T-2")
    keeper.changes()
    change(state, "T-1", "guard", "somebody")
    change(state, "T-2", "state", "held")
    assert keeper.changes() == Changes({"T-2": handles.load_watched("T-2")}, are_all=False)
    for _ in range(2):
        error = keeper.damaged["T-1"]
        assert re.search(r'^\S*/state\.db holds a bad record of "T-1": ', str(error))
        assert keeper.changes() == Changes({}, are_all=False)
    with state.transaction() as db:
        db.execute("UPDATE handle SET guard = NULL WHERE id = 'T-1'")
    assert keeper.changes() == Changes({"T-1": handles.load_watched("T-1")}, are_all=False)
    assert not keeper.damaged


def test_a_damaged_record_hides_no_other_from_a_new_keeper(state: State, handles: Handles) -> None:
    made(handles, state, "T-1")
    made(handles, state, "T-2")
    change(state, "T-1", "on_reclaim", "perhaps")
    keeper = WatchedHandles(state)
    assert keeper.changes() == Changes({"T-2": handles.load_watched("T-2")}, are_all=True)
    assert list(keeper.damaged) == ["T-1"]
