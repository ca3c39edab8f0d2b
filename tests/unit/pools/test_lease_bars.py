"""Who held what when, put together from events and from what is held now."""

from __future__ import annotations

import math

from leasectl.model import Lease
from leasectl.pools.chart_axes import number_ticks
from leasectl.pools.lease_bars import LeaseBar, LeaseBars
from leasectl.state.event import Event

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
