"""Who leads, from when to when: by the second, on a clock that a test moves."""

from __future__ import annotations

import pytest

from leasectl.errors import BackendUnreachable
from leasectl.maintenance.facts import Lease
from leasectl.maintenance.leadership import LEASE_NAME, Leadership
from leasectl.maintenance.objects import Json, parse_lease
from tests.kit.support import ManualClock
from tests.unit.maintenance.fake_cluster import FakeCluster

pytestmark = pytest.mark.once

TTL_SECONDS, RENEW_SECONDS = 15, 4.0
# What a leader may use of its lease.
USED = TTL_SECONDS - 2.0


class Here:
    """A replica, its cluster and the time there."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.time = ManualClock()
        self.leadership = self.replica("a")

    def replica(self, name: str) -> Leadership:
        return Leadership(self.cluster, name, self.time.clock)

    @property
    def now(self) -> float:
        return self.time.clock.elapsed()

    @property
    def lease(self) -> Lease:
        return parse_lease(self.cluster.leases[LEASE_NAME])

    def take_by_another(self, seconds: int | None = 60, holder: str = "b") -> None:
        self.cluster.put_lease(
            LEASE_NAME, holderIdentity=holder, leaseDurationSeconds=seconds, leaseTransitions=3
        )

    def slow(self, request: str, seconds: float) -> None:
        """Have each such request take a while before it is carried out."""
        sound = getattr(self.cluster, request)

        def slowly(*args: object, **options: object) -> object:
            self.time.advance(seconds)
            return sound(*args, **options)

        setattr(self.cluster, request, slowly)


@pytest.fixture
def here() -> Here:
    return Here()


class TestTaking:
    def test_who_finds_none_makes_it(self, here: Here) -> None:
        assert not here.leadership.has_seconds(0)
        here.leadership.turn()
        wall = here.time.clock.wall()
        assert here.lease == Lease("a", TTL_SECONDS, wall, wall, 0)
        assert (here.leadership.leader, here.leadership.reign) == ("a", 1)
        assert here.leadership.due_at == here.now + RENEW_SECONDS

    def test_it_lasts_from_when_its_write_was_sent_and_not_to_the_last_second(
        self, here: Here
    ) -> None:
        here.slow("lease", 1.0)
        here.slow("write_lease", 3.0)
        began = here.now
        here.leadership.turn()
        assert here.leadership.has_seconds(USED - 3)
        assert not here.leadership.has_seconds(USED - 2.9)
        # When to look again counts from when it began: two slow requests don't add up to it.
        assert here.leadership.due_at == began + RENEW_SECONDS

    @pytest.mark.parametrize(("seconds", "holder"), [(None, "b"), (60, "")])
    def test_one_that_nobody_has_is_taken_at_once(
        self, here: Here, seconds: int | None, holder: str
    ) -> None:
        here.take_by_another(seconds, holder)
        here.leadership.turn()
        assert here.leadership.has_seconds(USED)
        assert here.lease.transitions == 4

    def test_anothers_is_taken_once_it_was_seen_unchanged_for_as_long_as_it_lasts(
        self, here: Here
    ) -> None:
        here.take_by_another(6)
        here.leadership.turn()
        assert (here.leadership.leader, here.leadership.reign) == ("b", 0)
        assert here.leadership.due_at == here.now + RENEW_SECONDS
        here.time.advance(RENEW_SECONDS)
        here.leadership.turn()
        assert here.leadership.due_at == here.now + 2.0  # it ends before the next renewal would be
        assert not here.leadership.has_seconds(0)
        here.time.advance(2.0)
        here.leadership.turn()
        wall = here.time.clock.wall()
        assert here.lease == Lease("a", TTL_SECONDS, wall, wall, 4)
        assert here.leadership.leader == "a"


class TestRenewing:
    def test_it_goes_on_as_the_same_lease(self, here: Here) -> None:
        here.leadership.turn()
        first = here.lease
        here.time.advance(RENEW_SECONDS)
        here.leadership.turn()
        assert here.lease == first._replace(renewed_at=here.time.clock.wall())
        assert here.leadership.has_seconds(USED)
        assert here.leadership.reign == 1

    def test_a_duration_that_somebody_has_edited_is_put_right(self, here: Here) -> None:
        here.leadership.turn()
        here.cluster.leases[LEASE_NAME]["spec"]["leaseDurationSeconds"] = 3600
        here.leadership.turn()
        assert here.lease.duration_seconds == TTL_SECONDS

    def test_no_answer_takes_nothing_from_what_it_had(self, here: Here) -> None:
        here.leadership.turn()
        here.time.advance(RENEW_SECONDS)
        here.cluster.is_away = True
        with pytest.raises(BackendUnreachable):
            here.leadership.turn()
        assert here.leadership.has_seconds(USED - RENEW_SECONDS)
        assert not here.leadership.has_seconds(USED - RENEW_SECONDS + 0.1)
        assert here.leadership.due_at == here.now + RENEW_SECONDS

    def test_an_answer_that_was_lost_prolongs_nothing(self, here: Here) -> None:
        here.leadership.turn()
        here.time.advance(RENEW_SECONDS)
        here.cluster.loses_at = 2
        with pytest.raises(BackendUnreachable):
            here.leadership.turn()
        assert not here.leadership.has_seconds(USED - RENEW_SECONDS + 0.1)

    def test_who_sees_another_leads_no_more(self, here: Here) -> None:
        here.leadership.turn()
        here.take_by_another()
        here.leadership.turn()
        assert not here.leadership.has_seconds(0)
        assert here.leadership.leader == "b"


class TestResigning:
    def test_it_is_given_back_and_the_next_has_it_at_once(self, here: Here) -> None:
        here.leadership.turn()
        held = here.lease
        here.time.advance(1.0)
        here.leadership.resign()
        wall = here.time.clock.wall()
        assert here.lease == held._replace(duration_seconds=0, renewed_at=wall)
        assert not here.leadership.has_seconds(0)
        other = here.replica("b")
        other.turn()
        assert other.has_seconds(USED)

    def test_it_leads_no_more_although_nobody_answers(self, here: Here) -> None:
        here.leadership.turn()
        here.cluster.is_away = True
        with pytest.raises(BackendUnreachable):
            here.leadership.resign()
        assert not here.leadership.has_seconds(0)

    def test_what_is_not_its_own_is_left_alone(self, here: Here) -> None:
        here.leadership.resign()
        assert here.cluster.leases == {}
        here.take_by_another()
        here.leadership.resign()
        assert here.lease.duration_seconds == 60
        here.take_by_another(None, "a")
        here.cluster.requests.clear()
        here.leadership.resign()
        assert here.cluster.requests == ["lease"]  # it was given back before


class TestStandingBy:
    def test_who_was_stopped_while_it_asked_has_seen_the_lease_since_its_answer(
        self, here: Here
    ) -> None:
        here.leadership.turn()
        other = here.replica("b")
        other.turn()
        here.time.advance(RENEW_SECONDS)
        here.leadership.turn()
        # It begins to ask, and is stopped; the leader renews, and then it is answered.
        sound = here.cluster.lease

        def after_a_stop(name: str) -> Json | None:
            here.cluster.lease = sound  # type: ignore[method-assign]
            for _ in range(5):
                here.time.advance(RENEW_SECONDS)
                here.leadership.turn()
            return sound(name)

        here.cluster.lease = after_a_stop  # type: ignore[method-assign]
        other.turn()
        other.turn()
        assert here.leadership.has_seconds(USED)
        assert not other.has_seconds(0)
