"""That the judge of turns finds who was passed, and nobody else."""

from __future__ import annotations

from leasectl.state.event import Event, EventKind
from tests.kit.turns import unfair


def history(*steps: tuple[float, EventKind, int, int]) -> list[Event]:
    """Events of tickets, each as time, kind, ticket and priority."""
    return [
        Event(
            number,
            time,
            kind,
            "T",
            ("T--0",) if kind == "granted" else (),
            handle=f"h{ticket}",
            priority=priority,
            ticket=ticket,
        )
        for number, (time, kind, ticket, priority) in enumerate(steps, start=1)
    ]


TWO: tuple[tuple[float, EventKind, int, int], ...] = ((0, "queued", 1, 0), (1, "queued", 2, 1))


def test_the_higher_goes_first_and_of_equals_the_earlier() -> None:
    assert unfair(history(*TWO, (2, "granted", 2, 1), (3, "granted", 1, 0))) == []
    assert unfair(history(*TWO, (2, "granted", 1, 0))) == [
        "ticket 1 (0) was granted before ticket 2 (1)"
    ]
    equal = history((0, "queued", 1, 0), (1, "queued", 2, 0), (2, "granted", 2, 0))
    assert unfair(equal) == ["ticket 2 (0) was granted before ticket 1 (0)"]


def test_who_came_later_gave_up_or_died_was_not_passed() -> None:
    assert unfair(history(TWO[0], (1, "granted", 1, 0), TWO[1])) == []
    assert unfair(history(*TWO, (2, "gave up", 2, 1), (3, "granted", 1, 0))) == []
    assert unfair(history(*TWO, (2, "granted", 1, 0)), killed={"h2": 1.5}) == []
    assert unfair(history(*TWO, (2, "granted", 1, 0)), killed={"h2": 2.5}) != []


def test_what_was_waited_counts_where_it_ages() -> None:
    aged = history((0, "queued", 1, 0), (10, "queued", 2, 1), (15, "granted", 1, 0))
    assert unfair(aged, aging=10) == []
    assert unfair(aged, aging=20) != []
    # It was only just not so, and nobody knows to the millisecond.
    near = history((0, "queued", 1, 0), (9.9, "queued", 2, 1), (9.99, "granted", 1, 0))
    assert unfair(near, aging=10) != []
    assert unfair(near, aging=10, slack=0.05) == []


def test_one_that_waits_for_another_name_was_not_passed() -> None:
    one, other = history((0, "queued", 1, 0), (1, "queued", 2, 1))
    grant = history((2, "granted", 1, 0))[0]
    assert unfair([one, other._replace(names=("T--1",)), grant]) == []
    assert unfair([one, other._replace(names=("T--0",)), grant]) != []


def test_a_grant_to_nobody_who_waited_is_found() -> None:
    assert unfair(history((0, "granted", 1, 0))) == ["ticket 1 was granted, and didn't wait"]
