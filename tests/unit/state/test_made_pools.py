"""leasectl.state.watched and .stays: what the keeper sees to for processes beside handles."""

from __future__ import annotations

import pytest

from leasectl.model import Handle, Request
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.state.watched import MadePool, MadePools, Stay, Stays
from leasectl.system.process import this_process

US = this_process()
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
