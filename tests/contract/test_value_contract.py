"""What is kept under keys: all of a change or none, guarded by versions and by a claim."""

from __future__ import annotations

import threading

from leasectl.engines.values import LONGEST_VALUE, Guard, ValueChange
from leasectl.model import Lease, Request
from tests.contract.world import Client, World
from tests.kit.support import eventually


def put(world: World, key: str, content: bytes | None, version: int | None = None) -> bool:
    return world.values.change([ValueChange(key, content, version)])


def kept(world: World, prefix: str = "") -> dict[str, bytes]:
    return {each.key: each.content for each in world.values.read(prefix)}


def holding(world: World, *, ttl: float | None = None) -> tuple[Client, Lease]:
    world.pools.create_pool("T", ["T--0"])
    client = world.client()
    (lease,) = client.acquire(Request("T", ttl_seconds=ttl))
    return client, lease


def guard(client: Client, lease: Lease, *, frees: bool = False) -> Guard:
    return Guard(client.claim_key, lease.name, lease.fence, frees)


class TestKeeping:
    def test_what_is_put_is_read_until_it_is_taken_away(self, world: World) -> None:
        assert put(world, "a/b", b"\x00\xff\n")
        assert kept(world) == {"a/b": b"\x00\xff\n"}
        assert put(world, "a/b", None)
        assert kept(world) == {}

    def test_a_megabyte_is_kept_as_it_is(self, world: World) -> None:
        content = bytes(range(256)) * (LONGEST_VALUE // 256)
        assert put(world, "a", content)
        assert kept(world) == {"a": content}

    def test_what_begins_alike_is_read_together_by_key(self, world: World) -> None:
        for key in ("a/2", "b/1", "a/1"):
            put(world, key, key.encode())
        assert list(kept(world, "a/")) == ["a/1", "a/2"]

    def test_what_is_kept_for_a_time_goes_after_that(self, world: World) -> None:
        world.values.change([ValueChange("a", b"", keep_seconds=world.ttl_seconds)])
        world.let_pass(world.ttl_seconds / 2)
        assert kept(world) == {"a": b""}
        world.let_pass(world.ttl_seconds * 2)
        eventually(lambda: kept(world) == {})

    def test_it_is_told_when_that_was_written(self, world: World) -> None:
        put(world, "a", b"1")
        world.let_pass(5.0)
        put(world, "b", b"2")
        first, second = world.values.read("")
        assert 4.9 <= second.written_at - first.written_at <= 15.0


class TestVersions:
    def test_of_who_has_read_something_older_nothing_is_done(self, world: World) -> None:
        put(world, "a", b"1")
        (old,) = world.values.read("a")
        assert put(world, "a", b"2", old.version)
        assert not put(world, "a", b"3", old.version)
        assert not put(world, "a", None, old.version)
        assert kept(world) == {"a": b"2"}

    def test_none_may_have_to_be_there(self, world: World) -> None:
        assert put(world, "a", b"1", 0)
        assert not put(world, "a", b"2", 0)

    def test_a_key_that_was_taken_away_has_another_when_it_comes_again(self, world: World) -> None:
        put(world, "a", b"1")
        (old,) = world.values.read("a")
        put(world, "a", None)
        put(world, "a", b"1")
        assert not put(world, "a", b"2", old.version)

    def test_of_several_all_are_as_they_have_to_be_or_none_is_changed(self, world: World) -> None:
        put(world, "a", b"1")
        changes = [ValueChange("b", b"2"), ValueChange("a", b"2", 0)]
        assert not world.values.change(changes)
        assert kept(world) == {"a": b"1"}

    def test_of_many_at_once_one_is_done(self, world: World) -> None:
        done: list[bool] = []
        threads = [
            threading.Thread(target=lambda: done.append(put(world, "a", b"", 0))) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(done) == [False] * 5 + [True]


class TestAClaim:
    def test_allows_a_change(self, world: World) -> None:
        client, lease = holding(world)
        assert world.values.change([ValueChange("a", b"1")], guard=guard(client, lease))
        assert client.renew() == (lease.name,)

    def test_is_given_back_with_it(self, world: World) -> None:
        client, lease = holding(world)
        waiting = world.client().begin(Request("T"))
        both = guard(client, lease, frees=True)
        assert world.values.change([ValueChange("a", b"1")], guard=both)
        assert [each.name for each in waiting.result()] == [lease.name]
        assert kept(world) == {"a": b"1"}
        assert client.free() == ()

    def test_that_was_given_back_allows_none(self, world: World) -> None:
        client, lease = holding(world)
        client.free()
        assert not world.values.change([ValueChange("a", b"1")], guard=guard(client, lease))
        assert kept(world) == {}

    def test_of_before_allows_none_though_it_has_come_again(self, world: World) -> None:
        client, lease = holding(world)
        client.free()
        client.acquire(Request("T"))
        for frees in (False, True):
            old = guard(client, lease, frees=frees)
            assert not world.values.change([ValueChange("a", b"1")], guard=old)
        assert client.renew() == (lease.name,)

    def test_that_has_run_out_allows_none(self, world: World) -> None:
        client, lease = holding(world, ttl=world.ttl_seconds)
        world.let_pass(2 * world.ttl_seconds)
        mine = guard(client, lease, frees=True)
        eventually(lambda: not world.values.change([ValueChange("a", b"1")], guard=mine))
        assert kept(world) == {}

    def test_is_kept_where_a_version_is_another(self, world: World) -> None:
        client, lease = holding(world)
        put(world, "a", b"1")
        both = guard(client, lease, frees=True)
        assert not world.values.change([ValueChange("a", b"2", 0)], guard=both)
        assert client.renew() == (lease.name,)
