"""N leases from a server that grants one a request, in made-up time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Callable

import pytest

from leasectl.backends.one_by_one import BACKOFF, PART_SECONDS, acquire_one_by_one
from leasectl.errors import BackendUnreachable
from leasectl.model import Lease
from tests.kit.recorded import NoJournal

# What a server does: grants a name, lets all the time pass that it is given, or fails.
Step = object
NOT_IN_TIME = None


class Server:
    """Does one step after the other; time is what it lets pass."""

    def __init__(self, *steps: Step, ghost_seconds: float = 0.0) -> None:
        self.now = 0.0
        self.ghost_seconds = ghost_seconds
        self.steps = iter(steps)
        self.waits: list[float | None] = []
        self.paused: list[float] = []
        self.given_back: list[str] = []

    def ask_for_one(self, until: float | None) -> str | None:
        self.waits.append(None if until is None else until - self.now)
        step = next(self.steps)
        if isinstance(step, Exception):
            raise step
        if step is NOT_IN_TIME:
            assert until is not None, "nothing would ever end this wait"
            self.now = until
            return None
        return str(step)

    def give_back(self, name: str) -> None:
        self.given_back.append(name)

    def pause(self, seconds: float) -> None:
        self.paused.append(seconds)
        self.now += seconds


class Journal(NoJournal):
    """What is on record; some names are being given back by an older release."""

    key = "T-1/1"

    def __init__(self, being_given_back: Iterable[str] = ()) -> None:
        self.being_given_back = list(being_given_back)
        self.names: list[str] = []

    def arrived(self, name: str) -> Lease | None:
        if name in self.being_given_back:
            self.being_given_back.remove(name)
            return None
        self.names.append(name)
        return Lease(name, 0, 0, 0, "T-1", 0, 0, None, 0)

    def returning(self, name: str) -> None:
        pass

    def returned(self, name: str) -> None:
        self.names.remove(name)

    def lost_reply(self) -> None:
        raise AssertionError("nothing is lost here")

    def found(self) -> None:
        raise AssertionError("nothing is lost here")


def acquire(
    server: Server,
    count: int,
    *,
    journal: Journal | None = None,
    deadline: float | None = None,
    chance: Callable[[], float] = lambda: 0.0,
) -> Sequence[str] | None:
    leases = acquire_one_by_one(
        server,
        count,
        journal or Journal(),
        deadline=deadline,
        now=lambda: server.now,
        chance=chance,
    )
    return None if leases is None else [lease.name for lease in leases]


def test_the_first_is_waited_for_without_a_limit_and_the_rest_with_one() -> None:
    server = Server("a", "b", "c")
    acquire(server, 3, chance=lambda: 0.5)
    assert server.waits == [None, PART_SECONDS * 1.5, PART_SECONDS * 1.5]


def test_a_part_is_given_back_and_all_asked_for_again_after_a_pause() -> None:
    server, journal = Server("a", "b", NOT_IN_TIME, "b", "c", "d"), Journal()
    assert acquire(server, 3, journal=journal) == ["b", "c", "d"]
    assert server.given_back == ["a", "b"]
    assert len(server.paused) == 1
    assert journal.names == ["b", "c", "d"]


def test_pauses_get_longer_up_to_a_limit_and_are_left_to_chance() -> None:
    server = Server(*["a", NOT_IN_TIME] * 12, "a", "b")
    assert acquire(server, 2) == ["a", "b"]
    longest = [min(2.0**n, BACKOFF.longest_seconds) for n in range(12)]
    assert all(0 <= pause <= limit for pause, limit in zip(server.paused, longest))
    assert BACKOFF.chance == 1
    assert len(set(server.paused)) == len(server.paused)


def test_before_it_asks_again_the_ghost_of_what_was_given_up_is_gone() -> None:
    server = Server("a", NOT_IN_TIME, "a", "b", ghost_seconds=30.0)
    assert acquire(server, 2) == ["a", "b"]
    assert 30.0 <= server.paused[0] <= 30.0 + BACKOFF.first_seconds


def test_where_ghosts_stay_the_rest_is_waited_for_longer_than_they_do() -> None:
    # Or those whose way they are in would give up before they get anything.
    server = Server("a", "b", ghost_seconds=30.0)
    acquire(server, 2)
    assert server.waits[1] is not None
    assert server.waits[1] > PART_SECONDS + 2 * 30.0


def test_a_pause_ends_at_the_deadline_and_with_it_the_acquisition() -> None:
    server = Server("a", NOT_IN_TIME, ghost_seconds=30.0)
    assert acquire(server, 2, deadline=140.0) is None
    assert server.now == 140.0


def test_what_had_arrived_at_the_deadline_or_at_a_refusal_is_on_record() -> None:
    late, refused = Journal(), Journal()
    acquire(Server("a", NOT_IN_TIME), 2, journal=late, deadline=1.0)
    with pytest.raises(BackendUnreachable):
        acquire(Server("a", BackendUnreachable("gone")), 2, journal=refused)
    assert late.names == refused.names == ["a"]


def test_a_name_that_an_older_release_could_still_hit_is_given_back_and_another_asked_for() -> None:
    server, journal = Server("a", "a", "b"), Journal(being_given_back=["a"])
    assert acquire(server, 2, journal=journal, chance=lambda: 1.0) == ["a", "b"]
    assert server.given_back == ["a"]
    assert server.paused == [1.0]
    assert journal.names == ["a", "b"]
