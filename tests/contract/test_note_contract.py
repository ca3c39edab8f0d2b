"""What others note at a claim: guarded by its fence and by what was noted, gone with it."""

from __future__ import annotations

import threading

import pytest

from leasectl.engines.notes import Note, NoteChange
from leasectl.errors import NotFound
from leasectl.model import Lease, Request
from tests.contract.world import Client, World
from tests.kit.waits import eventually, wait_readable


def holding(world: World, count: int = 1, *, ttl: float | None = None) -> tuple[Client, Lease]:
    world.pools.create_pool("T", [f"T--{number}" for number in range(3)])
    client = world.client()
    first, *_ = client.acquire(Request("T", count, ttl_seconds=ttl))
    return client, first


def note(world: World, lease: Lease, text: str | None, *, before: str | None = None) -> bool:
    (is_done,) = world.notes.change([NoteChange("T", lease.name, lease.fence, before, text)])
    return is_done


def noted(world: World) -> list[tuple[str, str]]:
    return [(each.name, each.text) for each in world.notes.of_pool("T")]


def test_a_note_is_seen_by_the_holder_and_by_all(world: World) -> None:
    client, lease = holding(world)
    assert note(world, lease, "marked")
    assert world.notes.of_pool("T") == (Note("T", lease.name, lease.fence, "marked"),)
    assert world.notes.of_claims(client.claim_key) == world.notes.of_pool("T")


def test_a_note_is_changed_by_who_has_seen_it(world: World) -> None:
    _, lease = holding(world)
    assert note(world, lease, "marked")
    assert not note(world, lease, "again")
    assert not note(world, lease, "ready", before="something else")
    assert note(world, lease, "ready", before="marked")
    assert noted(world) == [(lease.name, "ready")]
    assert note(world, lease, None, before="ready")
    assert noted(world) == []


def test_each_of_several_is_done_or_not_by_itself(world: World) -> None:
    client, lease = holding(world, 2)
    _, other = client.renew()
    first = NoteChange("T", lease.name, lease.fence, None, "marked")
    wrong = NoteChange("T", other, lease.fence + 1000, None, "marked")
    assert world.notes.change([wrong, first, first]) == (False, True, False)


def test_many_are_changed_at_once(world: World) -> None:
    names = [f"T--{number:03}" for number in range(70)]
    world.pools.create_pool("T", names)
    leases = [each for _ in range(2) for each in world.client().acquire(Request("T", 35))]
    marks = [NoteChange("T", each.name, each.fence, None, f"for {each.name}") for each in leases]
    assert world.notes.change(marks) == (True,) * 70
    assert noted(world) == [(name, f"for {name}") for name in names]
    answers = [each._replace(before=each.after, after=None) for each in marks]
    answers[3] = answers[3]._replace(before="something else")
    assert world.notes.change(answers) == tuple(each.name != answers[3].name for each in answers)
    assert noted(world) == [(answers[3].name, f"for {answers[3].name}")]


def test_of_many_who_note_at_once_one_does(world: World) -> None:
    _, lease = holding(world)
    done: list[bool] = []
    threads = [
        threading.Thread(target=lambda text=each: done.append(note(world, lease, text)))
        for each in "abcdef"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [False] * 5 + [True]


def test_a_note_outlives_a_renewal(world: World) -> None:
    client, lease = holding(world, ttl=world.ttl_seconds)
    note(world, lease, "marked")
    client.renew()
    assert noted(world) == [(lease.name, "marked")]


def test_a_note_outlives_a_renewal_with_another_ttl(world: World) -> None:
    client, lease = holding(world, 2, ttl=world.ttl_seconds)
    note(world, lease, "marked")
    client.renew(2 * world.ttl_seconds)
    assert world.notes.of_claims(client.claim_key) == (
        Note("T", lease.name, lease.fence, "marked"),
    )
    assert note(world, lease, "ready", before="marked")
    client.renew(world.ttl_seconds)
    assert noted(world) == [(lease.name, "ready")]
    assert world.notes.free([Note("T", lease.name, lease.fence, "ready")], by="command")
    assert noted(world) == []


def test_a_note_goes_with_an_expiry_by_another_ttl(world: World) -> None:
    client, lease = holding(world, ttl=2 * world.ttl_seconds)
    note(world, lease, "marked")
    client.renew(world.ttl_seconds)
    world.let_pass(1.5 * world.ttl_seconds)
    eventually(lambda: noted(world) == [])


def test_a_note_goes_with_a_release_and_is_none_of_the_next_holders(world: World) -> None:
    client, lease = holding(world)
    note(world, lease, "marked")
    client.free()
    (again,) = world.client().acquire(Request("T", name=lease.name))
    assert noted(world) == []
    assert not note(world, lease, "ready", before="marked")
    assert again.fence > lease.fence


def test_a_note_goes_with_an_expiry(world: World) -> None:
    client, lease = holding(world, ttl=world.ttl_seconds)
    note(world, lease, "marked")
    world.let_pass(2 * world.ttl_seconds)
    eventually(lambda: world.notes.of_claims(client.claim_key) == ())
    eventually(lambda: noted(world) == [])


def test_a_note_at_a_lease_that_was_taken_by_force_is_none(world: World) -> None:
    client, lease = holding(world, ttl=world.ttl_seconds)
    world.pools.end_early(client.claim_key, [lease.name], guard=None, reason="an admin")
    assert not note(world, lease, "marked")


def test_what_is_noted_so_is_freed_and_no_other(world: World) -> None:
    client, lease = holding(world, 3)
    names = client.renew()
    marks = [Note("T", name, lease.fence, "ready") for name in names]
    note(world, lease, "ready")
    fences = {each.name: each.fence for each in world.notes.of_pool("T")}
    assert fences == {lease.name: lease.fence}
    assert world.notes.free(marks, by="command") == (lease.name,)
    assert client.renew() == tuple(name for name in names if name != lease.name)
    assert world.notes.free(marks, by="command") == ()


def test_what_is_freed_so_goes_to_who_waits(world: World) -> None:
    _, lease = holding(world, 3)
    waiting = world.client().begin(Request("T"))
    note(world, lease, "ready")
    world.notes.free([Note("T", lease.name, lease.fence, "ready")], by="command")
    assert [each.name for each in waiting.result()] == [lease.name]


def test_who_watches_is_woken_by_a_note_its_change_and_the_end_of_its_claim(world: World) -> None:
    client, lease = holding(world)
    watch = world.notes.watch("T")
    try:
        for step in (
            lambda: note(world, lease, "marked"),
            lambda: note(world, lease, "ready", before="marked"),
            lambda: note(world, lease, None, before="ready"),
            lambda: note(world, lease, "again"),
            client.free,
        ):
            watch.clear()
            seen = world.notes.of_pool("T")
            assert step()
            wait_readable(watch.fd)
            assert world.notes.of_pool("T") != seen
    finally:
        watch.close()


def told(world: World) -> list[tuple[tuple[str, ...], str]]:
    events = [each for each in world.events.read() if each.kind == "noted"]
    assert [each.number for each in events] == sorted({each.number for each in events})
    return [(each.names, each.reason) for each in events]


def test_what_is_done_is_an_event_and_nothing_else_is(world: World) -> None:
    client, lease = holding(world)
    mark = NoteChange("T", lease.name, lease.fence, None, "marked", "asked")
    answer = mark._replace(before="marked", after="ready", told="answered")
    wrong = answer._replace(before="something else", told="never")
    late = answer._replace(fence=lease.fence + 1000, told="too late")
    assert world.notes.change([wrong, mark]) == (False, True)
    assert world.notes.change([mark]) == world.notes.change([late]) == (False,)
    assert world.notes.change([answer]) == (True,)
    assert world.notes.change([answer._replace(before="ready", after="keep", told="")]) == (True,)
    assert world.notes.change([answer._replace(before="keep", after=None, told="off")]) == (True,)
    client.free()
    assert world.notes.change([mark._replace(told="gone")]) == (False,)
    assert told(world) == [((lease.name,), each) for each in ("asked", "answered", "off")]
    *_, granted, noted, _, _, released = world.events.read()
    assert (noted.type, noted.fences) == ("T", (lease.fence,))
    assert noted.holder_identity == granted.holder_identity != ""
    assert noted.handle == released.handle == client.claim_key
    assert noted.acquisition == released.acquisition
    assert (noted.ticket, noted.grant) == (released.ticket, released.grant)
    assert (noted.ticket, noted.grant) == (lease.ticket, lease.grant)
    assert (noted.by, noted.wait_seconds, noted.hold_seconds) == ("", None, None)


def test_of_many_that_are_changed_at_once_each_is_told_of_in_its_order(world: World) -> None:
    world.pools.create_pool("T", [f"T--{number:03}" for number in range(70)])
    leases = [each for _ in range(2) for each in world.client().acquire(Request("T", 35))]
    marks = [
        NoteChange("T", each.name, each.fence, None, "marked", f"asked for {each.name}")
        for each in reversed(leases)
    ]
    marks[40] = marks[40]._replace(before="something else")
    done = [each for each in marks if each.before is None]
    assert world.notes.change(marks) == tuple(each in done for each in marks)
    assert told(world) == [((each.name,), each.told) for each in done]


def test_of_no_pool_is_an_error(world: World) -> None:
    with pytest.raises(NotFound, match='"U"'):
        world.notes.of_pool("U")
