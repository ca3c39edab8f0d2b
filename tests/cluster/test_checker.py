"""The checker of a cluster's history notices what it is there to notice."""

from __future__ import annotations

import pytest

from tests.cluster.checker import SLACK_SECONDS, all_gone_at, all_violations, count
from tests.kit.history import Event, violations

TTL_SECONDS = 5.0
SECOND = 1_000_000_000


def event(at: float, kind: str, handle: str, name: str = "-", fence: int = 0, **more: int) -> Event:
    numbers = {"ticket": fence, "grant": fence, "wanted": 1, "until": 0, **more}
    return Event(round(at * SECOND), kind, handle, name, fence, **numbers)


def granted(at: float, handle: str, fence: int, *, until: float) -> Event:
    return event(at, "granted", handle, "r", fence, until=round(until * SECOND))


def later(at: float, kind: str, before: Event, until: float = 0) -> Event:
    return before._replace(at=round(at * SECOND), kind=kind, until=round(until * SECOND))


A = granted(10, "a.1", fence=1, until=14)


def overlaps(*history: Event) -> bool:
    return "r was granted to b.1 while a.1 held it" in violations(history, capacity=9)


class TestExclusion:
    def test_a_grant_while_another_believes_in_his_is_noticed(self) -> None:
        assert overlaps(A, granted(13, "b.1", fence=2, until=17))

    def test_a_use_ends_when_its_holder_stops_believing_in_it(self) -> None:
        assert not overlaps(A, granted(14.1, "b.1", fence=2, until=18))

    def test_a_renewal_prolongs_a_use(self) -> None:
        renewed = later(12, "renewed", A, until=16)
        assert overlaps(A, renewed, granted(15, "b.1", fence=2, until=19))
        assert not overlaps(A, renewed, granted(16.1, "b.1", fence=2, until=20))

    @pytest.mark.parametrize("kind", ["lost", "releasing"])
    def test_a_use_ends_when_its_holder_says_so(self, kind: str) -> None:
        assert not overlaps(A, later(11, kind, A), granted(11.5, "b.1", fence=2, until=15))

    def test_a_use_ends_with_its_holder(self) -> None:
        assert not overlaps(A, event(11, "died", "a"), granted(12, "b.1", fence=2, until=16))
        assert overlaps(A, event(13, "died", "a"), granted(12, "b.1", fence=2, until=16))
        assert overlaps(A, event(11, "died", "other"), granted(12, "b.1", fence=2, until=16))

    def test_a_long_use_is_remembered_past_a_short_one(self) -> None:
        long = granted(10, "a.1", fence=1, until=30)
        short = granted(11, "c.1", fence=2, until=12)
        assert overlaps(long, short, granted(20, "b.1", fence=3, until=24))

    def test_who_hears_of_a_grant_when_it_is_over_never_used_it(self) -> None:
        late = granted(20, "a.1", fence=1, until=14)
        assert violations([granted(15, "b.1", fence=2, until=19), late], capacity=1) == []


class TestReleases:
    def test_one_that_two_callers_made_is_noticed(self) -> None:
        history = [A, later(11, "releasing", A), later(12, "released", A)]
        assert violations(history, capacity=1) == []
        (found,) = violations([*history, later(12.1, "released", A)], capacity=1)
        assert found == "two callers were told that they released r of a.1"

    def test_one_that_no_caller_made_is_noticed(self) -> None:
        history = [A, later(11, "releasing", A), later(12, "unreleased", A)]
        (found,) = violations(history, capacity=1)
        assert found == "nobody was told of the release of r of a.1"

    def test_one_whose_answer_was_lost_can_not_be_told_from_a_later_one(self) -> None:
        later_one = granted(11.2, "b.1", fence=2, until=14)
        freed = [later(11.3, "releasing", later_one), later(11.4, "released", later_one)]
        sent, unknown = later(11, "releasing", A), later(12, "unreleased", A)
        assert violations([A, sent, later_one, *freed, unknown], capacity=1) == []

    def test_what_the_store_took_back_needs_no_release(self) -> None:
        history = [A, event(11, "expired", "a.1", "r"), later(12, "unreleased", A)]
        assert violations(history, capacity=1) == []


def found_in(*history: Event) -> list[str]:
    return all_violations(history, capacity=9, ttl_seconds=TTL_SECONDS)


class TestTheDead:
    DIED = event(10, "died", "a")
    MUST_BE_GONE = 10 + TTL_SECONDS + SLACK_SECONDS

    @pytest.mark.parametrize("kind", ["holds", "waits"])
    def test_what_they_have_after_one_ttl_is_noticed(self, kind: str) -> None:
        assert found_in(self.DIED, event(self.MUST_BE_GONE - 0.1, kind, "a.1")) == []
        (found,) = found_in(self.DIED, event(self.MUST_BE_GONE + 0.1, kind, "a.1"))
        assert found == f"a.1, which is dead, {kind} 0.1s longer than it may"

    def test_what_the_living_have_is_theirs(self) -> None:
        assert found_in(self.DIED, event(99, "holds", "b.1")) == []

    def test_a_new_leader_gives_them_one_more_ttl(self) -> None:
        leads = event(12, "leads", "m1")
        assert found_in(self.DIED, leads, event(self.MUST_BE_GONE + 1.9, "holds", "a.1")) == []
        assert found_in(self.DIED, leads, event(self.MUST_BE_GONE + 2.1, "holds", "a.1")) != []

    def test_a_later_leader_doesnt(self) -> None:
        seen = event(self.MUST_BE_GONE + 0.1, "holds", "a.1")
        assert found_in(self.DIED, seen, event(30, "leads", "m1")) != []

    def test_the_last_one_tells_when_nothing_can_be_left(self) -> None:
        history = [self.DIED, event(12, "leads", "m1"), event(11, "died", "b")]
        assert all_gone_at(history, ttl_seconds=TTL_SECONDS) == 12 + TTL_SECONDS + SLACK_SECONDS


def test_what_expires_before_its_time_is_noticed() -> None:
    expired = event(12, "expired", "a.1", "r")
    assert found_in(A, expired) == ["r of a.1 expired while its holder believed in it"]
    assert found_in(A, later(11, "lost", A), expired) == []
    assert found_in(event(9, "expired", "a.1", "r"), A) == []
    assert found_in(A, event(14.1, "expired", "a.1", "r")) == []


def test_a_participant_that_never_ends_is_noticed() -> None:
    assert found_in(event(1, "failed", "a", "hung")) == ["a hung"]


def test_what_happened_is_counted() -> None:
    early = granted(20, "b.1", fence=2, until=24)
    counts = count(
        [
            event(5, "leads", "m1"),
            event(6, "fault", "stop-leader", "m1"),
            event(7, "fault", "revoke-lease", "nobody"),
            event(9, "gave-up", "c.1", "NoLease"),
            A,
            later(14.7, "lost", A),
            early,
            later(21, "lost", early),
            granted(30, "a.2", fence=3, until=34),
            event(31, "killed", "a"),
        ]
    )
    assert (counts.grants, counts.releases, counts.losses) == (3, 0, 2)
    assert counts.late == 1
    assert (counts.gave_up, counts.faults) == ({"NoLease": 1}, {"stop-leader": 1})
    assert (counts.deaths, counts.leaders) == (1, 1)
