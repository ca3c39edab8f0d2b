"""What Prometheus reads, in its text format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from leasectl.engines.facts import Pool
from leasectl.pools.counted import CountedType

_BUCKETS = (0.01, 0.1, 1.0, 10.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0)


class Meter:
    """Counts grants, and how long they were waited for, since the server started."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}
        self._lost: dict[str, int] = {}

    @property
    def types(self) -> Sequence[str]:
        """The types of which anything was granted."""
        return tuple(self._counts)

    def granted(self, pool_type: str, waited_seconds: float) -> None:
        """Count a grant."""
        counts = self._counts.setdefault(pool_type, [0] * (len(_BUCKETS) + 1))
        bucket = next((n for n, most in enumerate(_BUCKETS) if waited_seconds <= most), -1)
        counts[bucket] += 1
        self._seconds[pool_type] = self._seconds.get(pool_type, 0.0) + waited_seconds

    def lost(self, pool_type: str, number: int) -> None:
        """Count leases that went away without having been given back."""
        self._lost[pool_type] = self._lost.get(pool_type, 0) + number

    def text(self, pools: Sequence[Pool]) -> str:
        """All metrics.

        Args:
            pools: As they are now; who waits in them without this server counts as well.
        """
        lines = [
            *_gauge("resources_held", "Resources held", {p.type: p.held for p in pools}),
            *_gauge("resources_free", "Resources free", {p.type: p.free for p in pools}),
            *_gauge(
                "resources_closed",
                "Resources that are free and nobody gets: cordoned, or held back",
                {p.type: p.closed for p in pools},
            ),
            *_gauge("requests_waiting", "Requests waiting", {p.type: len(p.queue) for p in pools}),
            *_waiting_by_priority(pools),
            *_settings(pools),
            *self._since_it_started(),
        ]
        return "\n".join([*lines, ""])

    def text_of_counts(self, counts: Sequence[CountedType]) -> str:
        """All metrics where pools are another server's, which only counts.

        Args:
            counts: As it told them; who waits without this server isn't known.
        """
        lost = {each.type: self._lost.get(each.type, 0) for each in counts}
        lines = [
            *_gauge("resources_held", "Resources held", {c.type: c.held for c in counts}),
            *_gauge("resources_free", "Resources free", {c.type: c.free for c in counts}),
            *_gauge(
                "resources_closed",
                "Resources that are neither: being cleaned, or put aside",
                {c.type: c.capacity - c.held - c.free for c in counts},
            ),
            *_gauge(
                "requests_waiting", "Requests waiting here", {c.type: c.waiting for c in counts}
            ),
            *_head("leases_lost_total", "Leases lost since this server started", "counter"),
            *(f"leasectl_leases_lost_total{{{_type(t)}}} {n}" for t, n in lost.items()),
            *self._since_it_started(),
        ]
        return "\n".join([*lines, ""])

    def _since_it_started(self) -> Iterable[str]:
        yield from _head("grants_total", "Grants by this server since it started", "counter")
        for pool_type, counts in self._counts.items():
            yield f"leasectl_grants_total{{{_type(pool_type)}}} {sum(counts)}"
        yield from _head("wait_seconds", "How long grants were waited for", "histogram")
        yield from self._histogram()

    def _histogram(self) -> Iterable[str]:
        for pool_type, counts in self._counts.items():
            label, total = _type(pool_type), 0
            for most, count in zip([*map("{:g}".format, _BUCKETS), "+Inf"], counts):
                total += count
                yield f'leasectl_wait_seconds_bucket{{{label},le="{most}"}} {total}'
            yield f"leasectl_wait_seconds_sum{{{label}}} {self._seconds[pool_type]:.6f}"
            yield f"leasectl_wait_seconds_count{{{label}}} {total}"


def _waiting_by_priority(pools: Sequence[Pool]) -> Iterable[str]:
    name = "requests_waiting_by_priority"
    yield from _head(name, "Requests waiting, by the priority that they asked for", "gauge")
    for pool in pools:
        for priority, number in sorted(Counter(each.priority for each in pool.queue).items()):
            yield f'leasectl_{name}{{{_type(pool.type)},priority="{priority}"}} {number}'


def _settings(pools: Sequence[Pool]) -> Iterable[str]:
    """How pools grant."""
    yield from _gauge(
        "pace_seconds",
        "Seconds for each grant, 0 without a pace",
        {p.type: p.settings.pace_seconds for p in pools},
    )
    yield from _gauge(
        "burst",
        "Grants that may come at once before the pace counts",
        {p.type: p.settings.burst for p in pools},
    )
    yield from _gauge(
        "aging_seconds",
        "Seconds of waiting that count as one priority, 0 for none",
        {p.type: p.settings.aging_seconds for p in pools},
    )
    yield from _gauge(
        "next_grant_seconds",
        "Seconds until the pace allows the next grant",
        {p.type: round(p.next_grant_in_seconds, 3) for p in pools},
    )


def _gauge(name: str, meaning: str, values: Mapping[str, float]) -> list[str]:
    lines = [f"leasectl_{name}{{{_type(each)}}} {value}" for each, value in values.items()]
    return [*_head(name, meaning, "gauge"), *lines]


def _head(name: str, meaning: str, kind: str) -> list[str]:
    return [f"# HELP leasectl_{name} {meaning}.", f"# TYPE leasectl_{name} {kind}"]


def _type(pool_type: str) -> str:
    return f'type="{pool_type}"'  # a type has nothing that would have to be escaped
