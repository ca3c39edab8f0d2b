"""leasectl.state.watched, .stays and .timers: what the keeper sees to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leasectl.errors import CorruptState
from leasectl.model import Handle, ReleaseTarget, Request, whole
from leasectl.state import watched
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.state.timers import GivingBack, Timers, begin_anew
from leasectl.state.watched import Changes, MadePool, MadePools, Stay, Stays, WatchedHandles
from leasectl.system.process import identify, is_dead, this_process

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


NOTHING = Changes({}, are_all=False)


def test_at_first_all_are_read(state: State, handles: Handles, keeper: WatchedHandles) -> None:
    assert keeper.changes() == Changes({}, are_all=True)
    made(handles, state, "T-1", runner=US, acquisition=3)
    made(handles, state, "T-2", guard=None)  # which nobody sees to
    for each in (WatchedHandles(state), keeper):
        changes = each.changes()
        assert changes.are_all
        (found,) = changes.handles.values()
        assert found is not None
        assert (found.id, found.acquisition, found.is_held) == ("T-1", 3, True)
        assert (found.guard, found.waiter, found.runner, found.ttl_seconds) == (US, None, US, None)
        assert found.processes == {US}


def test_what_the_keeper_is_given_to_release_later_is_new_to_it(
    state: State, handles: Handles, keeper: WatchedHandles
) -> None:
    handle = made(handles, state, "T-1", guard=None)
    made(handles, state, "T-2")
    assert set(keeper.changes().handles) == {"T-2"}
    with state.transaction():
        handles.timers.arm(whole(handle), 9.0)
    assert keeper.changes().handles == {"T-1": keeper.one("T-1")}


@pytest.mark.parametrize(
    ("request_", "fields", "ttl"),
    [
        (Request("T", ttl_seconds=60.0), {"explicit_ttl": False}, 60.0),
        (Request("T", ttl_seconds=60.0), {"explicit_ttl": True}, 60.0),
        (Request("T", ttl_seconds=60.0), {"explicit_ttl": True, "guard": None, "runner": US}, 60.0),
        (Request("T", ttl_seconds=60.0, scope="test"), {"explicit_ttl": True}, None),
        (Request("T"), {}, None),
    ],
)
def test_a_ttl_is_known_of_those_that_are_renewed_alone(
    state: State,
    handles: Handles,
    keeper: WatchedHandles,
    request_: Request,
    fields: dict[str, object],
    ttl: float | None,
) -> None:
    made(handles, state, "T-1", request=request_, **fields)
    found = keeper.one("T-1")
    assert found is not None
    assert found.ttl_seconds == ttl


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
            assert each.changes() == Changes({"T-1": keeper.one("T-1")}, are_all=False)
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
        assert other.changes() == Changes({"T-1": keeper.one("T-1")}, are_all=True)


def test_a_process_that_none_can_be_is_damage(
    state: State, handles: Handles, keeper: WatchedHandles
) -> None:
    made(handles, state, "T-1")
    with state.transaction() as db:
        db.execute("UPDATE handle SET guard = 'somebody'")
    with pytest.raises(CorruptState, match=r'^\S*/state\.db holds a bad record of "T-1": '):
        keeper.changes()
    with state.transaction() as db:
        db.execute("UPDATE handle SET guard = ?", (US.encode(),))
    assert keeper.changes() == Changes({"T-1": keeper.one("T-1")}, are_all=True)
    assert keeper.changes() == NOTHING


def test_what_could_not_be_read_is_read_with_the_next(
    state: State, handles: Handles, keeper: WatchedHandles
) -> None:
    made(handles, state, "T-1")
    made(handles, state, "T-2")
    keeper.changes()
    with state.transaction() as db:
        db.execute("UPDATE handle SET guard = 'somebody' WHERE id = 'T-1'")
    with pytest.raises(CorruptState, match=r'^\S*/state\.db holds a bad record of "T-1": '):
        keeper.changes()
    with state.transaction() as db:
        db.execute("UPDATE handle SET guard = NULL WHERE id = 'T-1'")
    assert keeper.changes() == Changes({"T-1": keeper.one("T-1")}, are_all=False)


def target(handle_id: str, *names: str, acquisition: int = 1) -> ReleaseTarget:
    return ReleaseTarget(handle_id, acquisition, names or None, by="delay")


@pytest.fixture
def timers(changing: State) -> Timers:
    timers = Timers(changing)
    timers.arm(target("T-2", "b", "a", acquisition=3), 9.0)
    timers.arm(target("T-1"), 5.0)
    timers.arm(target("T-3"), 7.5)
    return timers


def test_those_are_due_whose_time_has_come(timers: Timers) -> None:
    assert timers.due(4.9) == []
    assert timers.due(5.0) == [target("T-1")]
    assert timers.due(8.0) == [target("T-1"), target("T-3")]
    assert len(timers.due(9.0)) == 4


def test_the_next_is_the_first_that_is_not_due(timers: Timers) -> None:
    assert timers.next_after(0.0) == 5.0
    assert timers.next_after(5.0) == 7.5
    assert timers.next_after(9.0) is None


def test_those_of_no_handle_are_found(timers: Timers) -> None:
    assert sorted(timers.of_nobody()) == ["T-1", "T-2", "T-3"]


INIT = identify(1)


DEAD = US._replace(start_time=1)


@pytest.fixture
def under_way(state: State) -> Iterator[GivingBack]:
    with state.transaction():
        yield GivingBack(state, "etcd://here:1 T-1/1")


def test_each_process_is_on_record_for_each_name_once(under_way: GivingBack) -> None:
    for process in (US, INIT, US):
        under_way.start(["a", "b"], process)
    assert (
        sorted(under_way.processes("a")) == sorted(under_way.processes("b")) == sorted([US, INIT])
    )
    assert under_way.processes("c") == []


def test_that_one_is_certain_says_nothing_of_those_who_are_at_it_still(
    under_way: GivingBack,
) -> None:
    for process in (US, INIT, DEAD):
        under_way.start(["a", "b"], process)
    under_way.settled("a", US)
    assert under_way.processes("a") == [INIT]
    assert sorted(under_way.processes("b")) == sorted([US, INIT, DEAD])


def test_who_stops_trying_leaves_what_others_try(under_way: GivingBack) -> None:
    for process in (US, DEAD):
        under_way.start(["a", "b", "c"], process)
    under_way.stopped(["a", "b"], US)
    assert under_way.processes("a") == under_way.processes("b") == [DEAD]
    assert sorted(under_way.processes("c")) == sorted([US, DEAD])


def test_what_is_released_elsewhere_is_another_lease(state: State, under_way: GivingBack) -> None:
    elsewhere = GivingBack(state, "etcd://here:1 T-1/2")
    under_way.start(["a"], US)
    assert elsewhere.processes("a") == []
    elsewhere.start(["a"], US)
    elsewhere.stopped(["a"], US)
    assert under_way.processes("a") == [US]


def test_who_has_become_another_program_releases_nothing_anywhere(
    state: State, under_way: GivingBack
) -> None:
    elsewhere = GivingBack(state, "http://there")
    for releases in (under_way, elsewhere):
        for process in (US, INIT):
            releases.start(["a", "b"], process)
    begin_anew(state, US)
    for releases in (under_way, elsewhere):
        assert releases.processes("a") == releases.processes("b") == [INIT]


def test_who_gives_up_is_as_if_dead(under_way: GivingBack) -> None:
    under_way.start(["a", "b"], US)
    under_way.given_up(["a"], US)
    (process,) = under_way.processes("a")
    assert process != US and is_dead(process)
    assert under_way.processes("b") == [US]


def test_of_what_is_known_the_dead_are_forgotten(under_way: GivingBack) -> None:
    under_way.start(["a", "b"], DEAD)
    under_way.start(["a"], INIT)
    under_way.given_up(["a"], US)
    under_way.forget_dead(["a"])
    assert [under_way.processes(name) for name in "ab"] == [[INIT], [DEAD]]


OTHER = US._replace(pid=US.pid + 1)


POOL = MadePool("etcd://here:1", '{"user": "ci"}', "once.1", US)


STAY = Stay("etcd://here:1", '{"user": "ci"}', "node-1", "nodes", US, 60.0)


class TestMadePools:
    OTHERS = (
        POOL._replace(backend="local:"),
        POOL._replace(type="once.2"),
        POOL._replace(process=OTHER),
    )

    @pytest.fixture
    def pools(self, state: State) -> MadePools:
        return MadePools(state)

    def test_are_kept_each_for_its_process(self, state: State, pools: MadePools) -> None:
        assert not Handles(state).any_watched()
        with state.transaction():
            for each in (POOL, *self.OTHERS, POOL):
                pools.keep(each)
        assert sorted(pools.all()) == sorted((POOL, *self.OTHERS))
        assert Handles(state).any_watched()

    def test_are_forgotten_one_by_one(self, state: State, pools: MadePools) -> None:
        with state.transaction():
            for each in (POOL, *self.OTHERS):
                pools.keep(each)
            pools.forget(POOL)
        assert sorted(pools.all()) == sorted(self.OTHERS)

    def test_know_the_settings_that_were_said_last(self, state: State, pools: MadePools) -> None:
        with state.transaction():
            pools.keep(POOL)
            pools.keep(POOL._replace(settings="{}"))
        assert pools.all() == [POOL._replace(settings="{}")]

    @pytest.mark.parametrize("made_of", ["same", "another type", "another backend"])
    def test_are_asked_for_as_long_as_a_handle_holds_or_wants_something_there(
        self, state: State, pools: MadePools, made_of: str
    ) -> None:
        asked = Handle(
            id="once.1-abcdef",
            backend="local:" if made_of == "another backend" else POOL.backend,
            request=Request("once.2" if made_of == "another type" else POOL.type),
            owner="job/1",
            holder_identity="job/1/host/once.1-abcdef",
            state="acquiring",
            acquisition=1,
        )
        handles = Handles(state)
        assert not pools.is_asked_for(POOL)
        with state.transaction():
            handles.create(asked, remote=True)
        assert pools.is_asked_for(POOL) is (made_of == "same")
        with state.transaction():
            handles.grant(asked, (), now=1.0)
        assert pools.is_asked_for(POOL) is (made_of == "same")
        with state.transaction():
            handles.release(asked, now=2.0)
        assert not pools.is_asked_for(POOL)


class TestStays:
    @pytest.fixture
    def stays(self, state: State) -> Stays:
        return Stays(state)

    def test_are_kept_one_for_each_name_of_a_server(self, state: State, stays: Stays) -> None:
        assert not Handles(state).any_watched()
        others = (STAY._replace(backend="etcd://there:1"), STAY._replace(name="node-2"))
        again = STAY._replace(type="others", process=OTHER, ttl_seconds=5.0, settings="{}")
        with state.transaction():
            for each in (STAY, *others, again):
                stays.keep(each)
        assert sorted(stays.all()) == sorted((again, *others))
        assert Handles(state).any_watched()

    def test_are_forgotten_by_name(self, state: State, stays: Stays) -> None:
        others = [STAY._replace(backend="etcd://there:1"), STAY._replace(name="node-2")]
        with state.transaction():
            for each in (STAY, *others):
                stays.keep(each)
            stays.forget(STAY.backend, STAY.name)
        assert sorted(stays.all()) == sorted(others)

    def test_that_have_become_another_are_not_forgotten_by_who_means_the_old(
        self, state: State, stays: Stays
    ) -> None:
        with state.transaction():
            stays.keep(STAY)
            stays.forget_this(STAY._replace(process=OTHER))
            stays.forget_this(STAY._replace(name="node-2"))
            stays.forget_this(STAY._replace(backend="etcd://there:1"))
        assert stays.all() == [STAY]
        with state.transaction():
            stays.forget_this(STAY._replace(ttl_seconds=5.0))
        assert stays.all() == []
