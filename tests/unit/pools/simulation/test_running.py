"""What comes of jobs that come to a simulated pool."""

from __future__ import annotations

from heapq import heappop
from pathlib import Path
from random import Random

import pytest

from leasectl.errors import InvalidRequest
from leasectl.pools.simulation import running
from leasectl.pools.simulation.jobs import Job, parse_arrivals, parse_holds
from leasectl.pools.simulation.policies import parse_policy
from leasectl.pools.simulation.replay import recorded
from leasectl.pools.simulation.running import (
    Outcome,
    Run,
    VirtualTime,
    check_jobs,
    outcome_of,
    picture_row,
    run,
)
from leasectl.pools.simulation.scenario import (
    Scenario,
    advised_policy,
    largest_deviation,
    made_up,
    pool_of,
    replayed,
)
from leasectl.pools.simulation.search import Limits, Sought, search
from leasectl.state.directory import State
from leasectl.state.event import Event
from leasectl.system.poll import is_readable
from tests.kit.pacing import too_fast
from tests.kit.story import story_of

# On which Python makes no difference to what comes of thousands of turns.
pytestmark = pytest.mark.once


def no_file(name: str) -> str:
    raise AssertionError(name)


def scenario(arrivals: str, hold: str, capacity: int, *, count: int = 1, seed: int = 1) -> Scenario:
    return made_up(
        parse_arrivals(arrivals, no_file),
        parse_holds(hold, no_file),
        pool_of("pool", capacity),
        count=count,
        seed=seed,
    )


def run_of(tried: Scenario, policy: str = "none") -> Run:
    return run(tried.jobs, tried.pool, parse_policy(policy), seed=str(tried.seed))


def outcome(tried: Scenario, policy: str = "none") -> Outcome:
    return outcome_of(run_of(tried, policy), tried.pool, policy)


def mixed_jobs(number: int, seed: int = 3) -> tuple[Job, ...]:
    """Jobs of several counts, priorities and names, each of whose leases may have its own hold."""
    chance = Random(seed)
    jobs = []
    for _ in range(number):
        count = chance.choice([1, 1, 1, 1, 3])
        jobs.append(
            Job(
                at=chance.uniform(0, 3000),
                holds=tuple(chance.uniform(50, 150) for _ in range(count)),
                count=count,
                priority=chance.randrange(-5, 6),
                name="pool--01" if count == 1 and chance.random() < 0.1 else None,
                wait_seconds=200.0 if chance.random() < 0.1 else None,
            )
        )
    return tuple(sorted(jobs))


class PolledTime(VirtualTime):
    """Virtual time for waiters that sleep on named pipes."""

    def run(self) -> None:
        while True:
            woken = [fd for fd in self._sleeping if is_readable(fd, 0)]
            if woken:
                sleeper = self._sleeping.pop(woken[0])
                sleeper.sleep = 0  # another may sleep on a descriptor of the same number
                sleeper.resume({woken[0]})
            elif self._agenda:
                time, _, do = heappop(self._agenda)
                self._now = max(self._now, time)
                do()
            else:
                return


class TestARun:
    def test_without_anything_all_start_in_waves(self) -> None:
        tried = run_of(scenario("6", "10m", 2))
        assert tried.starts == (0, 0, 600, 600, 1200, 1200)
        assert tried.waits == tried.starts
        assert (tried.begin, tried.end, tried.held_seconds) == (0, 1800, 6 * 600)

    def test_a_pace_is_kept_and_its_burst(self) -> None:
        tried = run_of(scenario("40", "10m", 9), "pace=20s,burst=3")
        starts = [at for at in tried.starts if at is not None]
        assert too_fast(starts, pace=20, burst=3) == []
        assert too_fast(starts, pace=20.5, burst=3) != []
        assert tried.starts[:4] == (0, 0, 0, 20)

    def test_jitter_comes_before_the_request_and_counts_as_a_wait(self) -> None:
        tried = run_of(scenario("20", "10m", 20), "jitter=5m")
        assert len(set(tried.starts)) == 20
        assert all(0 <= (at or 0) <= 300 for at in tried.starts)
        assert tried.waits == tried.starts
        assert {e.wait_seconds for e in tried.events if e.kind == "granted"} == {0.0}

    def test_start_jitter_comes_after_the_grant_with_the_lease_in_hand(self) -> None:
        tried = run_of(scenario("20", "10m", 20), "start-jitter=5m")
        assert set(tried.grants) == {0.0}
        assert len(set(tried.starts)) == 20
        ended = sorted(event.time for event in tried.events if event.kind == "released")
        assert ended == pytest.approx(sorted((at or 0) + 600 for at in tried.starts))
        row = picture_row(tried, pool_of("pool", 20), "x", tried.end)
        assert list(row.timeline.grants) == sorted(at or 0 for at in tried.starts)

    def test_release_after_draws_the_hold(self) -> None:
        tried = run_of(scenario("20", "10m", 20), "release-after=4m-6m")
        held = [event.hold_seconds or 0 for event in tried.events if event.kind == "released"]
        assert len(set(held)) == 20
        assert 240 <= min(held) <= max(held) <= 360

    def test_counts_priorities_names_and_patience_are_those_of_the_jobs(self) -> None:
        jobs = (
            Job(0, (100.0,), count=2),
            Job(1, (10.0,), priority=-1),
            Job(2, (10.0,), priority=1),
            Job(3, (10.0,), name="pool--01", wait_seconds=5.0),
        )
        tried = run(jobs, pool_of("pool", 2), parse_policy("none"))
        assert tried.grants == (0, 100, 100, None)
        story = story_of(tried.events)
        assert (story.broken, story.held, story.waiting) == ([], {}, set())

    def test_leases_of_one_job_may_end_one_after_the_other(self) -> None:
        tried = run((Job(0, (10.0, 30.0), count=2), Job(0, (5.0,))), pool_of("pool", 2), NONE)
        assert tried.grants == (0, 10)
        assert tried.held_seconds == 45

    def test_its_events_can_be_true(self) -> None:
        tried = run(mixed_jobs(60), pool_of("pool", 3), parse_policy("pace=5s,aging=2m"))
        story = story_of(tried.events)
        assert (story.broken, story.held, story.waiting) == ([], {}, set())

    @pytest.mark.parametrize("policy", ["none", "pace=4s,burst=2,aging=90s"])
    def test_jobs_are_granted_when_a_state_directory_grants_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
    ) -> None:
        jobs, pool = mixed_jobs(60), pool_of("pool", 3)
        in_memory = run(jobs, pool, parse_policy(policy))
        monkeypatch.setattr(running, "VirtualTime", PolledTime)
        monkeypatch.setattr(running, "MemoryState", lambda _: State.open(str(tmp_path / "state")))
        on_disk = run(jobs, pool, parse_policy(policy))
        assert on_disk.grants == in_memory.grants
        assert len(on_disk.events) == len(in_memory.events)

    @pytest.mark.parametrize(
        ("job", "said"),
        [
            (Job(0, (1.0,), count=3), "job 1 asks for 3 resources, and the capacity is 2"),
            (Job(0, (1.0,), name="other"), 'asks for "other"'),
        ],
    )
    def test_a_job_that_could_never_be_served_is_refused(self, job: Job, said: str) -> None:
        with pytest.raises(InvalidRequest, match=said):
            check_jobs([job], pool_of("pool", 2))

    def test_the_same_seed_is_the_same_again(self) -> None:
        for policy in ("jitter=5m", "start-jitter=5m,pace=3s", "release-after=1m-9m"):
            assert run_of(scenario("1/m:20m", "5m+-50%", 4), policy) == run_of(
                scenario("1/m:20m", "5m+-50%", 4), policy
            )
            assert run_of(scenario("1/m:20m", "5m+-50%", 4), policy) != run_of(
                scenario("1/m:20m", "5m+-50%", 4, seed=2), policy
            )

    def test_no_job_at_all_that_started_has_no_figures_but_zero(self) -> None:
        jobs = (Job(0, (10.0,)), Job(0, (10.0,), wait_seconds=0.0))
        found = outcome_of(run(jobs, pool_of("pool", 1), NONE), pool_of("pool", 1), "none")
        assert (found.jobs, found.gave_up, found.peak_starts) == (2, 1, 1)


NONE = parse_policy("none")


class TestAdvice:
    def test_it_is_a_little_faster_than_what_the_pool_can_do(self) -> None:
        advised = advised_policy(scenario("500", "20m", 50).jobs, 50)
        assert advised is not None
        assert advised.text == "pace=20s"
        twice = advised_policy(scenario("500", "20m", 50, count=2).jobs, 50)
        assert twice is not None
        assert twice.text == "pace=40s"

    def test_there_is_none_below_what_a_pool_can_be_set_to(self) -> None:
        assert advised_policy(scenario("500", "1s", 50).jobs, 50) is None


class TestSearch:
    @pytest.mark.parametrize(
        ("sought", "limits", "arrivals"),
        [
            ("pace", Limits(peak_starts=3), "60"),
            ("pace", Limits(peak_starts=7), "3x20/10m"),
            ("capacity", Limits(wait_p95=600.0), "3x20/10m"),
            ("capacity", Limits(wait_max=600.0, makespan=4300.0), "1/m:1h"),
            ("capacity", Limits(wait_max=1200.0, peak_starts=30), "60"),
        ],
    )
    def test_nothing_smaller_does_it(self, sought: Sought, limits: Limits, arrivals: str) -> None:
        tried = scenario(arrivals, "10m", 10)
        tries: list[float] = []

        def attempt(tried: Scenario, policy: object) -> Run:
            tries.append(0)
            return run(tried.jobs, tried.pool, policy, seed="1")  # type: ignore[arg-type]

        found = search(sought, limits, tried, NONE, attempt)
        assert found.does_it
        assert len(tries) < 15
        assert limits.are_kept(found.outcome)
        for smaller in smaller_than(sought, found.value):
            if sought == "pace":
                other = outcome(tried, f"pace={smaller}")
            else:
                other = outcome(scenario(arrivals, "10m", int(smaller)))
            assert not limits.are_kept(other), smaller

    def test_what_none_does_is_said_with_what_comes_nearest(self) -> None:
        tried = scenario("60", "10m", 10)

        def attempt(tried: Scenario, policy: object) -> Run:
            return run(tried.jobs, tried.pool, policy, seed="1")  # type: ignore[arg-type]

        found = search("pace", Limits(peak_starts=3, makespan=600.0), tried, NONE, attempt)
        assert (found.does_it, found.value) == (False, 20.0)
        burst = parse_policy("pace=1s,burst=5")
        found = search("pace", Limits(peak_starts=3), tried, burst, attempt)
        assert (found.does_it, found.value) == (False, 3600.0)
        found = search("capacity", Limits(makespan=599.0), tried, NONE, attempt)
        assert (found.does_it, found.value) == (False, 60)

    def test_no_capacity_is_sought_for_jobs_that_want_a_name(self) -> None:
        tried = scenario("2", "10m", 10)
        tried = tried._replace(jobs=(tried.jobs[0]._replace(name="pool--00"),))
        with pytest.raises(InvalidRequest, match="by its name"):
            search("capacity", Limits(wait_max=1.0), tried, NONE, lambda *_: run_of(tried))


def smaller_than(sought: Sought, value: float) -> list[float]:
    """Some smaller values, the next among them."""
    if sought == "capacity":
        return [value - 1, value // 2]
    return [value - 1, value - 2, value / 2, value / 3] if value > 10 else [value - 0.1, value / 2]


class TestReplay:
    @pytest.mark.parametrize("policy", ["pace=12s", "pace=9s,burst=2,aging=3m"])
    def test_what_was_granted_is_granted_again_when_it_was(self, policy: str) -> None:
        pool = pool_of("pool", 3)
        jobs = mixed_jobs(80)
        before = run(jobs, pool._replace(epoch=1_700_000_000.0), parse_policy(policy))
        found = recorded(before.events)
        again = replayed(found, found.names, seed=1)
        assert found.names == pool.names
        assert again.recorded is not None
        assert again.recorded.grants.count(None) == before.grants.count(None)
        deviation = largest_deviation(run_of(again, policy), again.recorded)
        assert deviation is not None
        assert deviation < 0.0001
        other = largest_deviation(run_of(again, "pace=25s"), again.recorded)
        assert other is not None
        assert other > 0.02
        assert sorted(job.priority for job in again.jobs) == sorted(job.priority for job in jobs)

    def test_under_none_a_pace_shows_the_wave_that_it_has_spared(self) -> None:
        tried = scenario("30", "10m", 10)
        found = recorded(run_of(tried, "pace=50s").events)
        again = replayed(found, found.names, seed=1)
        assert outcome(again, "none").peak_starts == 10
        assert outcome(again, "pace=50s").peak_starts == 2

    def test_what_was_recorded_is_told_as_it_was(self) -> None:
        before = run_of(scenario("30", "10m", 10), "pace=50s")
        found = recorded(before.events)
        again = replayed(found, found.names, seed=1)
        assert again.recorded is not None
        here = outcome_of(again.recorded, again.pool, "x")
        assert here == outcome_of(before, pool_of("pool", 10), "x")

    def test_a_record_without_its_beginning_and_its_end_will_do(self) -> None:
        before = run_of(scenario("30", "10m", 10))
        part = [each for each in before.events if 500 < each.time < 1500]
        found = recorded(part)
        # Ten held before it began, and ten still do.
        assert {job.at for job in found.jobs} == {0}
        assert found.granted_at == (0,) * 10 + (600,) * 10 + (1200,) * 10
        assert [job.longest_hold for job in found.jobs] == [600.0] * 30

    def test_who_waits_still_will_hold_as_the_others(self) -> None:
        before = run_of(scenario("30", "10m", 10))
        found = recorded(each for each in before.events if each.time < 700)
        assert found.granted_at.count(None) == 10
        assert [job.longest_hold for job in found.jobs[20:]] == [600.0] * 10

    def test_who_gave_up_would_have_held_as_the_others(self) -> None:
        impatient = Job(at=1.0, holds=(600.0,), wait_seconds=60.0)
        tried = scenario("2", "10m", 2)
        before = run((*tried.jobs, impatient), tried.pool, parse_policy("none"))
        found = recorded(before.events)
        assert (found.granted_at, found.jobs[2]) == ((0.0, 0.0, None), impatient)
        larger = run(found.jobs, pool_of("pool", 3), parse_policy("none"))
        assert larger.held_seconds == pytest.approx(3 * 600.0)

    def test_a_pool_of_which_not_all_names_are_told_has_them_all_the_same(self) -> None:
        events = [
            Event(1, 0.0, "pool made", "T", (), count=3, reason="3 resources, no pace"),
            Event(2, 1.0, "queued", "T", handle="h", ticket=1),
            Event(3, 1.0, "granted", "T", ("T--01",), handle="h", ticket=1, wait_seconds=0.0),
        ]
        assert recorded(events).names == ("T--01", "T--02", "T--03")

    def test_one_that_was_deleted_has_those_it_had(self) -> None:
        tried = run_of(scenario("3", "10m", 2))
        end = Event(99, 9999.0, "pool deleted", "pool", pool_of("pool", 2).names, count=2)
        assert recorded([*tried.events, end]).names == pool_of("pool", 2).names

    def test_who_asked_for_a_name_that_has_gone_takes_any(self) -> None:
        events = [
            Event(1, 0.0, "pool made", "T", ("a", "b"), count=2),
            Event(2, 1.0, "queued", "T", ("a",), handle="h", ticket=1),
            Event(3, 1.0, "granted", "T", ("a",), handle="h", ticket=1, wait_seconds=0.0),
            Event(4, 2.0, "released", "T", ("a",), handle="h", ticket=1, hold_seconds=1.0),
            Event(5, 3.0, "pool changed", "T", ("a",), count=1, reason="1 resource removed"),
        ]
        found = recorded(events)
        assert found.names == ("b",)
        assert replayed(found, found.names, seed=1).jobs[0].name is None
