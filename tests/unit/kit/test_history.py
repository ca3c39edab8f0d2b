"""The checker of histories notices what it is there to notice."""

from __future__ import annotations

from pathlib import Path

from leasectl.model import Lease
from tests.kit.history import Event, Recorder, parse_event, read_history, violations


def granted(
    at: int, handle: str, name: str, fence: int, ticket: int, grant: int = 0, wanted: int = 1
) -> Event:
    return Event(at, "granted", handle, name, fence, ticket, grant or ticket, wanted)


def releasing(at: int, before: Event) -> Event:
    return before._replace(at=at, kind="releasing")


A = granted(10, "a", "r0", fence=1, ticket=1)
B = granted(30, "b", "r0", fence=2, ticket=2)
SOUND = [A, releasing(20, A), B, releasing(40, B)]


def test_a_sound_history_passes() -> None:
    assert violations(SOUND, capacity=1) == []


def test_one_resource_twice_is_noticed() -> None:
    history = [A, B, releasing(40, A), releasing(50, B)]
    assert "r0 was granted to b while a held it" in violations(history, capacity=2)


def test_the_hold_of_a_killed_holder_ends_at_an_unknown_time() -> None:
    assert violations([A, B, releasing(40, B)], capacity=1) == []


def test_more_held_than_there_are_is_noticed() -> None:
    other = granted(15, "b", "r1", fence=2, ticket=2)
    history = [A, other, releasing(20, A), releasing(25, other)]
    assert violations(history, capacity=2) == []
    assert violations(history, capacity=1) == ["2 held at once, of 1"]


def test_a_fence_that_does_not_grow_is_noticed() -> None:
    again = B._replace(fence=1)
    assert violations([A, releasing(20, A), again], capacity=1) == ["r0 got fence 1 after fence 1"]


def test_grants_out_of_ticket_order_are_noticed() -> None:
    swapped = [A._replace(grant=2), releasing(20, A), B._replace(grant=1)]
    assert violations(swapped, capacity=1) == ["ticket 2 has grant 1, but ticket 1 has grant 2"]


def test_who_waits_for_another_name_may_be_passed_and_only_then() -> None:
    passed = A._replace(name="r1", grant=2, at=50)
    asked = A._replace(at=5, kind="asked", name="r1")
    history = [B._replace(grant=1), passed]
    assert violations(history, capacity=2) != []
    assert violations([asked, *history], capacity=2) == []
    assert violations([asked._replace(name="r0"), *history], capacity=2) != []


def test_who_was_stopped_for_long_enough_may_be_passed_until_it_goes_on() -> None:
    second = 10**9
    late = A._replace(grant=2, at=40 * second, fence=9)
    stops = [
        A._replace(at=10 * second, kind="stopped"),
        A._replace(at=30 * second, kind="continued"),
    ]
    for at, sound in ((15, False), (25, True), (36, False)):
        history = [B._replace(grant=1, at=at * second), late]
        assert (violations([*stops, *history], capacity=2) == []) == sound
        assert violations(history, capacity=2) != []


def test_a_grant_of_two_tickets_is_noticed() -> None:
    assert violations([A, releasing(20, A), B._replace(grant=1)], capacity=1) != []


def test_a_part_of_a_group_is_noticed() -> None:
    part = A._replace(wanted=2)
    assert violations([part], capacity=2) == ["a got ['r0'] with one grant, and wanted 2"]


def test_what_is_recorded_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "history"
    leases = [Lease(f"r{n}", 7 + n, 3, 2, "x/y/z/h", 0.0, 0.0, None, 0) for n in range(2)]
    Recorder(path).write("granted", "h.1", leases)
    read = read_history(path)
    assert [event[1:] for event in read] == [
        ("granted", "h.1", "r0", 7, 3, 2, 2, 0),
        ("granted", "h.1", "r1", 8, 3, 2, 2, 0),
    ]
    assert [parse_event(event.encode()) for event in read] == read


def test_a_line_that_is_being_written_is_left_for_later(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text(A.encode() + B.encode()[:-9])
    assert read_history(path) == [A]
