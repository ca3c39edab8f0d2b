"""What came of a pool's leases: numbers, series and bars, of histories made by hand."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from leasectl.engines.facts import Pool, Resource
from leasectl.engines.rules.events import got_instead
from leasectl.model import Lease
from leasectl.pools.chart_axes import number_ticks
from leasectl.pools.lease_bars import LeaseBar, LeaseBars
from leasectl.pools.simulation.replay import recorded
from leasectl.pools.statistics import (
    ALWAYS,
    Spread,
    Statistics,
    Window,
    percentile,
    series_of,
    starts_within,
    statistics_of,
)
from leasectl.pools.timeline import Present, Timeline, present_of, timelines
from leasectl.state.event import Event, EventKind
from leasectl.state.rows import FIRST_DRAWN

START = 1_700_000_000.0


def statistics(
    events: Iterable[Event], window: Window = ALWAYS, present: Present | None = None
) -> Statistics:
    timeline = Timeline()
    for event in events:
        timeline.add(event)
    if present is not None:
        timeline.settle(present)
    return statistics_of(timeline, window)


@dataclasses.dataclass
class Log:
    """Events written down by hand; times are seconds after START."""

    type: str = "T"
    events: list[Event] = dataclasses.field(default_factory=list)

    def add(self, at: float, kind: EventKind, **facts: Any) -> None:
        facts.setdefault("type", self.type)
        self.events.append(Event(len(self.events) + 1, START + at, kind, **facts))

    def pool(self, at: float, number: int) -> None:
        """A pool with so many resources is made; deleted with as many that are less than none."""
        self.add(at, "pool made" if number > 0 else "pool deleted", count=abs(number))

    def resize(self, at: float, by: int) -> None:
        reason = f"{abs(by)} resources {'added' if by > 0 else 'removed'}"
        self.add(at, "pool changed", count=abs(by), reason=reason)

    def queue(self, at: float, handle: str) -> None:
        self.add(at, "queued", handle=handle, acquisition=1)

    def grant(self, at: float, handle: str, *names: str, wait: float | None = None) -> None:
        self.add(
            at,
            "granted",
            handle=handle,
            acquisition=1,
            names=names or (handle,),
            count=len(names or (handle,)),
            wait_seconds=wait,
        )

    def release(
        self, at: float, handle: str, *names: str, hold: float | None = None, by: str = "command"
    ) -> None:
        self.add(
            at,
            "released",
            handle=handle,
            acquisition=1,
            names=names or (handle,),
            hold_seconds=hold,
            by=by,
        )

    def timeline(self) -> Timeline:
        return timelines(self.events).get(self.type, Timeline())


@pytest.fixture
def log() -> Log:
    return Log()


def resources(number: int) -> tuple[str, ...]:
    return tuple(f"r{n}" for n in range(number))


def window(since: float | None, until: float | None) -> Window:
    return Window(
        None if since is None else START + since, None if until is None else START + until
    )


def test_a_small_history_is_counted(log: Log) -> None:
    log.pool(0, 2)
    log.queue(0, "a")
    log.grant(0, "a", wait=0.0)
    log.queue(10, "b")
    log.grant(20, "b", wait=10.0)
    log.queue(25, "c")
    log.add(40, "gave up", handle="c", acquisition=1, wait_seconds=15.0)
    log.add(50, "lost", names=("a",), handle="a", acquisition=1)
    log.release(50, "a", hold=50.0, by="force")
    log.release(100, "b", hold=80.0, by="guard")
    found = statistics(log.events)
    assert (found.grants, found.gave_up, found.lost, found.taken_back) == (2, 1, 1, 1)
    assert found.wait == Spread(0.0, 10.0, 10.0)
    assert found.hold == Spread(50.0, 80.0, 80.0)
    assert found.peak_starts == 2
    assert found.utilisation == pytest.approx((50 + 80) / 200)
    assert found.makespan_seconds == 100.0
    assert (found.capacity, found.held, found.waiting) == (2, 0, 0)
    assert (found.since, found.until) == (START, START + 100)


def test_nothing_comes_of_no_events() -> None:
    found = statistics(())
    assert (found.grants, found.wait, found.hold, found.peak_starts) == (0, None, None, 0)
    assert (found.utilisation, found.capacity, found.makespan_seconds) == (None, None, None)
    assert found.advised_pace_seconds is None
    assert series_of(Timeline(), steps=3).held == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([7.0], 50, 7.0),
        ([7.0], 95, 7.0),
        ([1.0, 2.0], 50, 1.0),
        ([1.0, 2.0, 3.0], 50, 2.0),
        ([1.0, 2.0, 3.0, 4.0], 50, 2.0),
        ([float(n) for n in range(1, 101)], 95, 95.0),
        ([float(n) for n in range(1, 21)], 95, 19.0),
        ([float(n) for n in range(1, 22)], 95, 20.0),
    ],
)
def test_a_percentile_is_the_nearest_rank(
    values: list[float], percent: int, expected: float
) -> None:
    assert percentile(values, percent) == expected


@pytest.mark.parametrize(
    ("grants", "peak"),
    [
        ([0.0], 1),
        ([0.0, 59.9], 2),
        ([0.0, 60.0], 1),
        ([0.0, 59.9995], 1),  # of a pace: no float is that exact
        ([20.0 * n for n in range(10)], 3),
        ([24.0 * n for n in range(10)], 3),
        ([0.1 * n for n in range(10)] + [200.0], 10),
        ([50.0, 0.0, 100.0], 2),
    ],
)
def test_a_peak_is_the_most_grants_less_than_a_minute_apart(grants: list[float], peak: int) -> None:
    assert max(starts_within([START + at for at in grants])) == peak


def test_a_window_cuts_through_holds_and_counts_what_is_inside(log: Log) -> None:
    log.pool(0, 1)
    log.grant(0, "a", wait=0.0)
    log.release(100, "a", hold=100.0)
    log.grant(150, "b", wait=50.0)
    log.release(250, "b", hold=100.0)
    found = statistics(log.events, window(50, 200))
    assert found.utilisation == pytest.approx((50 + 50) / 150)
    assert (found.grants, found.hold) == (1, Spread(100.0, 100.0, 100.0))
    assert (found.held, found.waiting) == (1, 0)
    middle = statistics(log.events, window(20, 80))
    assert (middle.utilisation, middle.grants, middle.hold) == (1.0, 0, None)
    assert middle.held == 1


def test_a_lease_granted_before_the_log_begins_is_held_from_its_beginning(log: Log) -> None:
    log.add(0, "pool changed", count=0, reason="pace 20s; before: no pace")
    log.release(60, "a", hold=1000.0)
    present = present_of(Pool("T", (Resource("a"),), ()), START + 60)
    found = statistics(log.events, present=present)
    assert found.utilisation == 1.0
    assert found.hold == Spread(1000.0, 1000.0, 1000.0)
    assert found.makespan_seconds is None  # nobody knows when it was asked for


def test_what_goes_on_lasts_until_the_window_ends(log: Log) -> None:
    log.pool(0, 2)
    log.grant(0, "a")
    log.queue(50, "b")
    found = statistics(log.events, window(None, 100))
    assert found.utilisation == pytest.approx(0.5)
    assert (found.held, found.waiting, found.hold) == (1, 1, None)


def test_a_clock_that_went_back_makes_no_negative_times(log: Log) -> None:
    log.pool(0, 1)
    log.queue(1000, "a")
    log.grant(100, "a")
    log.release(50, "a")
    log.grant(60, "b", wait=-3.0)
    log.release(40, "b", hold=-5.0)
    found = statistics(log.events)
    assert found.wait == Spread(0.0, 0.0, 0.0)
    assert found.hold == Spread(0.0, 0.0, 0.0)
    assert found.utilisation == 0.0
    assert set(series_of(log.timeline(), steps=5).held) == {0.0}


def test_what_was_written_by_a_clock_that_was_ahead_hides_nothing(log: Log) -> None:
    log.pool(9e8, 1)
    log.grant(100, "a", wait=0.0)
    log.release(150, "a", hold=50.0)
    found = statistics(log.events, window(None, 200))
    assert (found.grants, found.since) == (1, START + 100)
    assert found.utilisation == pytest.approx(0.5)


def test_how_long_it_took_is_what_the_event_says_whatever_the_clock_did(log: Log) -> None:
    log.grant(0, "a", wait=5.0)
    log.release(4000, "a", hold=20.0)
    found = statistics(log.events)
    assert (found.wait, found.hold) == (Spread(5.0, 5.0, 5.0), Spread(20.0, 20.0, 20.0))


def test_several_names_are_as_many_leases_and_one_grant(log: Log) -> None:
    log.pool(0, 4)
    log.grant(0, "a", "n1", "n2", "n3", wait=0.0)
    log.release(10, "a", "n1", hold=10.0)
    log.release(20, "a", "n2", "n3", hold=20.0, by="guard")
    found = statistics(log.events)
    assert (found.grants, found.taken_back, found.resources_per_grant) == (1, 2, 3.0)
    assert found.hold == Spread(20.0, 20.0, 20.0)
    assert found.utilisation == pytest.approx(50 / 80)


def test_a_resource_has_one_holder_also_where_a_release_was_not_written(log: Log) -> None:
    log.pool(0, 1)
    log.grant(0, "a", "n")
    log.grant(40, "b", "n")
    log.release(100, "b", "n", hold=60.0)
    found = statistics(log.events)
    assert found.utilisation == pytest.approx(1.0)
    assert found.hold == Spread(60.0, 60.0, 60.0)


def capacities(log: Log, there: int | None = None) -> tuple[float, ...] | None:
    """In four steps of 50 s, as the events say; if the pool is there still, with what is in it."""
    timeline = log.timeline()
    if there is not None:
        found = tuple(Resource(name) for name in resources(there))
        timeline.settle(present_of(Pool("T", found, ()), START + 200))
    return series_of(timeline, window(0, 200), steps=4).capacity


def test_the_capacity_changes_with_the_pool(log: Log) -> None:
    log.pool(0, 1)
    log.grant(0, "a")
    log.resize(50, 2)
    log.release(100, "a")
    log.add(100, "pool changed", count=0, reason="pace 20s; before: no pace")
    log.pool(150, -3)
    found = statistics(log.events, window(None, 200))
    assert found.utilisation == pytest.approx(100 / (50 + 3 * 100))
    assert found.capacity == 0
    assert capacities(log) == (1.0, 3.0, 3.0, 0.0)


def test_a_pool_that_is_there_tells_what_a_trimmed_log_does_not(log: Log) -> None:
    log.pool(0, 2)
    log.resize(50, -1)
    log.resize(100, 3)
    log.resize(150, -2)
    whole = (2.0, 1.0, 4.0, 2.0)
    assert capacities(log) == whole
    assert capacities(log, 2) == whole
    del log.events[0]
    assert capacities(log, 2) == whole
    assert capacities(log) is None


def held_and_waiting(log: Log, there: Pool | None = None) -> tuple[object, ...]:
    """In four steps of 50 s, and at the end; if the pool is there, as it was then."""
    timeline = log.timeline()
    if there is not None:
        timeline.settle(present_of(there, START + 200))
    drawn = series_of(timeline, window(0, 200), steps=4)
    found = statistics(log.events, window(None, 200), there and present_of(there, START + 200))
    return drawn.held, drawn.waiting, found.held, found.waiting


@pytest.mark.parametrize("told", ["nothing", "before", "afterwards"])
def test_nobody_holds_or_waits_in_a_pool_that_is_gone(log: Log, told: str) -> None:
    log.pool(0, 2)
    log.grant(0, "a", "T--00", "T--01")
    log.queue(50, "b")
    if told == "afterwards":  # as etcd has it
        log.pool(100, -2)
    if told != "nothing":
        log.release(100, "a", "T--00", "T--01", hold=100.0, by="removal")
        log.add(100, "gave up", handle="b", acquisition=1, wait_seconds=50.0)
    if told != "afterwards":
        log.pool(100, -2)
    was = ((2.0, 2.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), 0, 0)
    assert held_and_waiting(log) == was
    assert statistics(log.events, window(None, 200)).utilisation == pytest.approx(1.0)


def test_what_was_not_told_of_a_pool_does_not_add_to_what_went_with_it(log: Log) -> None:
    log.resize(0, 1)
    log.pool(100, -2)
    assert capacities(log, 3) == (2.0, 2.0, 3.0, 3.0)  # whoever made it wrote nothing


def test_a_pool_that_was_made_in_the_window_had_no_capacity_before(log: Log) -> None:
    log.pool(100, 2)
    assert capacities(log) == (0.0, 0.0, 2.0, 2.0)
    assert capacities(log, 2) == (0.0, 0.0, 2.0, 2.0)
    log.events[:0] = [log.events[0]._replace(time=START, kind="pool deleted", count=7)]
    assert capacities(log, 2) == (0.0, 0.0, 2.0, 2.0)


def test_who_got_another_type_instead_did_not_give_up(log: Log) -> None:
    log.queue(0, "a")
    log.add(10, "gave up", handle="a", acquisition=1, wait_seconds=10.0, reason=got_instead("U"))
    found = statistics(log.events)
    assert (found.gave_up, found.waiting) == (0, 0)
    assert sum(series_of(log.timeline(), steps=2).waiting) == 2.0


def test_who_asks_again_after_restarts_of_its_server_did_not_give_up(log: Log) -> None:
    for at in (0, 10, 30):
        drawn = FIRST_DRAWN + at
        log.add(at, "queued", handle="a", acquisition=drawn)
        if at == 30:
            log.add(35, "granted", handle="a", acquisition=drawn, names=("x",), wait_seconds=5.0)
        else:
            log.add(at + 5, "gave up", handle="a", acquisition=drawn, wait_seconds=5.0)
    found = statistics(log.events)
    assert (found.gave_up, found.grants, found.wait) == (0, 1, Spread(35.0, 35.0, 35.0))
    assert list(log.timeline().waiting) == [
        (START, START + 5),
        (START + 10, START + 15),
        (START + 30, START + 35),
    ]
    (job,) = recorded(log.events).jobs
    assert (job.at, job.wait_seconds) == (0.0, None)


def lease(at: float) -> Lease:
    return Lease("x", 1, 1, 1, "h", START + at, START + at, None, 0)


def test_the_pool_says_what_its_events_do_not(log: Log) -> None:
    # "old" was granted before the log begins, "gone" ended without an event.
    log.grant(100, "gone")
    log.grant(150, "new")
    pool = Pool("T", (Resource("old", lease(0)), Resource("new", lease(150)), Resource("n")), ())
    present = present_of(pool, START + 200)
    found = statistics(log.events, window(None, 200), present)
    assert (found.capacity, found.held) == (3, 2)
    assert found.utilisation == pytest.approx((100 + 50) / 300)


def test_what_happened_after_the_pool_was_looked_at_counts(log: Log) -> None:
    log.grant(100, "a")
    log.release(201, "a", hold=101.0)
    log.grant(202, "b")
    present = present_of(Pool("T", (Resource("a", lease(100)), Resource("b")), ()), START + 200)
    found = statistics(log.events, window(None, 210), present)
    assert found.held == 1
    assert found.utilisation == pytest.approx((101 + 8) / 220)


def test_the_advised_pace_is_the_hold_by_the_capacity_and_a_little_faster(log: Log) -> None:
    log.pool(0, 50)
    for number in range(19):
        log.grant(number, f"h{number}")
        log.release(1200 + number, f"h{number}", hold=1200.0)
    assert statistics(log.events).advised_pace_seconds is None  # too few to go by
    log.grant(20, "a")
    log.release(1220, "a", hold=1200.0)
    assert statistics(log.events).advised_pace_seconds == pytest.approx(20.0)


def test_the_advised_pace_heeds_how_many_each_takes(log: Log) -> None:
    log.pool(0, 50)
    for number in range(10):
        log.grant(number, f"h{number}", "n1", "n2")
        log.release(1200 + number, f"h{number}", "n1", "n2", hold=1200.0)
    assert statistics(log.events).advised_pace_seconds == pytest.approx(40.0)


def test_a_series_has_averages_and_the_peak_of_each_step(log: Log) -> None:
    log.pool(0, 2)
    for at in (0.0, 100.0, 110.0):
        log.grant(at, f"h{at}", "n" if at == 0 else f"n{at}")
    log.release(150, "h0.0", "n", hold=150.0)
    log.queue(200, "w")
    found = series_of(log.timeline(), window(0, 400), steps=4)
    assert found.held == pytest.approx((1.0, 0.5 + 1.0 + 0.9, 2.0, 2.0))
    assert found.waiting == (0.0, 0.0, 1.0, 1.0)
    assert found.starts == (1, 2, 0, 0)
    assert found.capacity == (2.0, 2.0, 2.0, 2.0)
    assert found.step_seconds == 100.0


def test_a_series_knows_what_was_most_at_any_instant(log: Log) -> None:
    for n in range(40):
        log.queue(1000, f"h{n}")
        log.grant(1000, f"h{n}", f"n{n}")
        log.release(1010, f"h{n}", f"n{n}", hold=10.0)
    log.grant(1010, "next", "n0")  # as the others end
    for n in range(7):
        log.queue(1020 + n, f"w{n}")
    found = series_of(log.timeline(), window(0, 4000), steps=4)
    assert max(found.held) < 4
    assert (found.peak_held, found.peak_waiting) == (40, 7)
    later = series_of(log.timeline(), window(1010, 1020), steps=4)
    assert (later.peak_held, later.peak_waiting) == (1, 0)


def test_in_short_steps_a_start_counts_for_a_minute(log: Log) -> None:
    log.grant(0, "a")
    log.grant(20, "b")
    found = series_of(log.timeline(), window(0, 100), steps=10)
    assert found.starts == (1, 1, 2, 2, 2, 2, 1, 1, 0, 0)


def test_a_series_goes_into_json_and_adds_up(log: Log) -> None:
    log.pool(0, 1)
    for n in range(30):
        log.grant(n * 7.3, f"h{n}", "n")
        log.release(n * 7.3 + 3.1, f"h{n}", "n", hold=3.1)
    for steps in (1, 7, 64):
        found = series_of(log.timeline(), window(0, 250), steps=steps)
        assert len(found.held) == steps
        assert sum(found.held) * found.step_seconds == pytest.approx(30 * 3.1, rel=1e-4)
        assert json.loads(json.dumps(found._asdict()))["held"] == list(found.held)


def busy_log(events: int) -> Iterator[Event]:
    yield Event(0, START, "pool made", "T", count=50)
    for n in range(events // 3):
        at, handle, name = START + 10.0 * n, f"T-{n}", f"T--{n % 50}"
        yield Event(3 * n, at, "queued", "T", handle=handle, acquisition=1)
        yield Event(3 * n + 1, at + 5, "granted", "T", (name,), (), handle, 1, wait_seconds=5.0)
        yield Event(
            3 * n + 2, at + 400, "released", "T", (name,), (), handle, 1, hold_seconds=395.0
        )


@pytest.mark.once
def test_ten_times_the_events_are_ten_times_the_work() -> None:
    def work(events: int) -> int:
        calls = 0

        def count(*_: object) -> None:
            nonlocal calls
            calls += 1

        log = list(busy_log(events))
        sys.setprofile(count)
        try:
            timelines(log)
            statistics(log)
        finally:
            sys.setprofile(None)
        return calls

    assert work(30_000) < 11 * work(3000)


@pytest.mark.once
def test_a_series_of_many_events_agrees_with_their_statistics() -> None:
    events = list(busy_log(100_000))
    found = statistics(events)
    drawn = series_of(timelines(events)["T"], steps=200)
    assert found.grants == 33_333
    assert found.utilisation == pytest.approx(sum(drawn.held) / sum(drawn.capacity or ()), rel=1e-3)
    assert not math.isnan(found.utilisation or 0.0)


URL = "https://ci/1"


def granted(at: float, name: str, job: str, wait: float = 0.0, url: str = URL) -> Event:
    who = f"{job}/1/host/T-{job}"
    event = Event(1, at, "granted", "T", (name,), (), holder_identity=who, wait_seconds=wait)
    return event._replace(build_url=url)


def ended(at: float, name: str) -> Event:
    return Event(1, at, "released", "T", (name,), ())


def bars_of(*events: Event) -> LeaseBars:
    found = LeaseBars()
    for each in events:
        found.add(each)
    return found


def seen(bars: LeaseBars, since: float = 0.0, until: float = 1000.0) -> list[tuple[object, ...]]:
    return [
        (each.name, each.queued, each.begin, each.end, each.who)
        for each in bars.within(since, until)
    ]


def test_a_lease_has_its_wait_its_end_and_its_job() -> None:
    bars = bars_of(granted(10, "a", "x", wait=4), granted(11, "b", "y"), ended(20, "a"))
    assert seen(bars) == [("a", 6, 10, 20, "x"), ("b", 11, 11, math.inf, "y")]
    assert bars.within(0, 1000)[0].url == URL
    assert bars.within(0, 1000)[0] == LeaseBar("a", 10, 20, 6, "x/1/host/T-x", URL)


def test_a_grant_ends_what_held_the_resource_before() -> None:
    bars = bars_of(granted(10, "a", "x"), granted(30, "a", "y"))
    assert seen(bars) == [("a", 10, 10, 30, "x"), ("a", 30, 30, math.inf, "y")]


def test_only_what_was_in_the_stretch_counts() -> None:
    bars = bars_of(granted(10, "a", "x"), ended(20, "a"), granted(50, "a", "y", wait=25))
    assert [each[4] for each in seen(bars, 21, 24)] == []
    assert [each[4] for each in seen(bars, 21, 26)] == ["y"]  # which waits
    assert [each[4] for each in seen(bars, 15, 24)] == ["x"]


def test_the_pool_is_believed_about_what_is_held_now() -> None:
    bars = bars_of(granted(10, "a", "x", wait=3), granted(10, "b", "y"), granted(10, "c", "z"))
    kept = Lease("a", 1, 1, 1, "x/1/host/T-x", 10.0, 0.0, None, 0)
    other = Lease("c", 1, 1, 1, "w/1/host/T-w", 40.0, 0.0, None, 0, labels=(("build", "ftp://x"),))
    bars.settle((kept, other))
    assert seen(bars) == [("a", 7, 10, math.inf, "x"), ("c", 40, 40, math.inf, "w")]
    assert bars.within(0, 1000)[1].url == ""  # no link but to http


def test_only_http_is_a_link() -> None:
    assert bars_of(granted(1, "a", "x", url="javascript:alert(1)")).within(0, 9)[0].url == ""


def test_numbers_at_an_axis_are_whole_and_few() -> None:
    assert [number_ticks(top) for top in (0.3, 1, 4, 55, 198, 5000)] == [
        (0,),
        (0, 1),
        (0, 2, 4),
        (0, 20, 40),
        (0, 100),
        (0, 2000, 4000),
    ]
