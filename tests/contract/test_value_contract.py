"""What is kept under keys: all of a change or none, guarded by versions and by a claim."""

from __future__ import annotations

import threading

import pytest

from leasectl.engines.values import Guard, ValueChange
from leasectl.model import Lease, Request
from leasectl.once.work import work_of
from leasectl.state.event import Event
from tests.contract.world import Client, World
from tests.kit.waits import eventually

A, B, CONTENT = "t/a/x", "t/b/x", "t/content/x/7"  # of one subject


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
        assert put(world, A, b"\x00\xff\n")
        assert kept(world) == {A: b"\x00\xff\n"}
        assert put(world, A, None)
        assert kept(world) == {}
        assert world.values.get(A) is None

    @pytest.mark.parametrize("part", [bytes(range(256)), b'"\\\n.' * 64])
    def test_a_content_may_be_as_large_as_it_may(self, world: World, part: bytes) -> None:
        content = part * (world.values.largest_content // 256)
        assert put(world, CONTENT, content)
        found = world.values.get(CONTENT)
        assert found is not None and found.content == content
        assert put(world, CONTENT, None)
        assert world.values.get(CONTENT) is None

    def test_a_content_is_seen_only_by_its_key(self, world: World) -> None:
        assert put(world, CONTENT, b"1")
        assert put(world, A, b"2")
        assert kept(world) == {A: b"2"}
        assert world.values.get("t/content/x/8") is None

    @pytest.mark.parametrize("content", [b"", b"two\nlines\t", "ü".encode(), b"\r", b"\xff"])
    def test_what_is_text_and_what_is_none_are_kept_as_they_are(
        self, world: World, content: bytes
    ) -> None:
        assert put(world, A, content)
        found = world.values.get(A)
        assert found is not None and (found.key, found.content) == (A, content)

    def test_what_begins_alike_is_read_together_by_key(self, world: World) -> None:
        for key in ("t/a/2", "t/b/1", "t/a/1", "u/a/1"):
            put(world, key, key.encode())
        assert list(kept(world, "t/a/")) == ["t/a/1", "t/a/2"]
        assert list(kept(world, "t/a/1")) == ["t/a/1"]

    def test_a_change_is_of_one_subject(self, world: World) -> None:
        apart = [ValueChange(A, b"1"), ValueChange("t/a/y", b"1")]
        for changes in (apart, [ValueChange("no-key", b"1")], [ValueChange(A, b"1")] * 2):
            with pytest.raises(ValueError, match=r"change|key"):
                world.values.change(changes)
        assert kept(world) == {}

    def test_what_is_kept_for_a_time_goes_after_that(self, world: World) -> None:
        for key in (A, CONTENT):
            world.values.change([ValueChange(key, b"", keep_seconds=world.ttl_seconds)])
        world.let_pass(world.ttl_seconds / 2)
        assert kept(world) == {A: b""}
        assert world.values.get(CONTENT) is not None
        world.let_pass(world.ttl_seconds * 2)
        eventually(lambda: kept(world) == {})
        eventually(lambda: world.values.get(CONTENT) is None)
        world.values.tidy()
        assert put(world, A, b"1", 0)

    def test_it_is_told_when_that_was_written(self, world: World) -> None:
        put(world, A, b"1")
        world.let_pass(5.0)
        put(world, B, b"2")
        first, second = world.values.read("")
        assert 4.9 <= second.written_at - first.written_at <= 15.0


class TestVersions:
    def test_of_who_has_read_something_older_nothing_is_done(self, world: World) -> None:
        put(world, A, b"1")
        (old,) = world.values.read(A)
        assert put(world, A, b"2", old.version)
        assert not put(world, A, b"3", old.version)
        assert not put(world, A, None, old.version)
        assert kept(world) == {A: b"2"}

    def test_none_may_have_to_be_there(self, world: World) -> None:
        assert put(world, A, b"1", 0)
        assert not put(world, A, b"2", 0)

    def test_a_key_that_was_taken_away_has_another_when_it_comes_again(self, world: World) -> None:
        put(world, A, b"1")
        (old,) = world.values.read(A)
        put(world, A, None)
        put(world, A, b"1")
        assert not put(world, A, b"2", old.version)

    def test_of_several_all_are_as_they_have_to_be_or_none_is_changed(self, world: World) -> None:
        put(world, A, b"1")
        changes = [ValueChange(B, b"2"), ValueChange(A, b"2", 0)]
        assert not world.values.change(changes)
        assert kept(world) == {A: b"1"}

    def test_of_many_at_once_one_is_done(self, world: World) -> None:
        done: list[bool] = []
        threads = [
            threading.Thread(target=lambda: done.append(put(world, A, b"", 0))) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(done) == [False] * 5 + [True]


class TestAClaim:
    def test_allows_a_change(self, world: World) -> None:
        client, lease = holding(world)
        assert world.values.change([ValueChange(A, b"1")], guard=guard(client, lease))
        assert client.renew() == (lease.name,)

    def test_is_given_back_with_it(self, world: World) -> None:
        client, lease = holding(world)
        waiting = world.client().begin(Request("T"))
        both = guard(client, lease, frees=True)
        assert world.values.change([ValueChange(A, b"1")], guard=both)
        assert [each.name for each in waiting.result()] == [lease.name]
        assert kept(world) == {A: b"1"}
        assert client.free() == ()

    def test_that_was_given_back_allows_none(self, world: World) -> None:
        client, lease = holding(world)
        client.free()
        assert not world.values.change([ValueChange(A, b"1")], guard=guard(client, lease))
        assert kept(world) == {}

    def test_of_before_allows_none_though_it_has_come_again(self, world: World) -> None:
        client, lease = holding(world)
        client.free()
        client.acquire(Request("T"))
        for frees in (False, True):
            old = guard(client, lease, frees=frees)
            assert not world.values.change([ValueChange(A, b"1")], guard=old)
        assert client.renew() == (lease.name,)

    def test_that_has_run_out_allows_none(self, world: World) -> None:
        client, lease = holding(world, ttl=world.ttl_seconds)
        world.let_pass(2 * world.ttl_seconds)
        mine = guard(client, lease, frees=True)
        eventually(lambda: not world.values.change([ValueChange(A, b"1")], guard=mine))
        assert kept(world) == {}

    def test_is_kept_where_a_version_is_another(self, world: World) -> None:
        client, lease = holding(world)
        put(world, A, b"1")
        both = guard(client, lease, frees=True)
        assert not world.values.change([ValueChange(A, b"2", 0)], guard=both)
        assert client.renew() == (lease.name,)

    def test_tells_of_work_whose_key_is_any_text(self, world: World) -> None:
        client, lease = holding(world)
        names = work_of("release:é/@ ,", [b"\x1b[31m, x"]).names
        event = Event(0, 0.0, "work done", "T", names, (lease.fence,))
        assert world.values.change([ValueChange(A, b"1")], guard=guard(client, lease), event=event)

        def told() -> list[tuple[str, ...]]:
            return [each.names for each in world.events.read() if each.kind == "work done"]

        eventually(lambda: told() == [names])
