"""The events of the pools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from leasectl.engines.event_words import MembershipChange
from leasectl.engines.memory.queue import Place
from leasectl.engines.memory.stock import Stock, StockedPool
from leasectl.model import Claimant, Lease, ReleasedBy
from leasectl.state.event import ALL_EVENTS, Event, EventFilter, EventKind, Missed
from leasectl.state.event_rows import is_written
from leasectl.system.clock import Clock
from leasectl.system.wakeup import Wakeup
from leasectl.text.naming import build_url_in


class MemoryEvents:
    """The log of one process's pools, as `EventLog`. Whoever writes holds the store's lock.

    Args:
        clock: Where times come from.
    """

    remark = ""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._events: list[Event] = []  # numbered from 1, and all are kept
        self._watches: list[MemoryEventWatch] = []

    def read(
        self,
        wanted: EventFilter = ALL_EVENTS,
        *,
        after: int = 0,
        missed: Callable[[Missed], None] | None = None,
    ) -> Iterator[Event]:
        found = self._events[after:]  # a copy, so that more may be written while somebody reads
        return iter(found) if wanted == ALL_EVENTS else filter(wanted.wants, found)

    def latest(self, wanted: EventFilter, number: int, *, only_recent: bool = False) -> list[Event]:
        return list(islice(filter(wanted.wants, reversed(self._events)), number))

    def last_number(self) -> int:
        return len(self._events)

    def watch(self) -> MemoryEventWatch:
        watch = MemoryEventWatch(self._watches)
        self._watches.append(watch)
        return watch

    def wake(self) -> None:
        """Have all look who watch."""
        for watch in self._watches:
            watch.wakeup.set()

    # What is written

    def queued(self, pool: StockedPool, place: Place) -> None:
        """A ticket was put."""
        self._add_of("queued", pool, place)

    def granted(self, pool: StockedPool, place: Place, leases: Sequence[Lease]) -> None:
        """A ticket became leases."""
        self._add_of(
            "granted",
            pool,
            place,
            names=tuple(lease.name for lease in leases),
            fences=tuple(lease.fence for lease in leases),
            grant=leases[0].grant,
            wait_seconds=self._clock.elapsed() - place.put_at,
        )

    def gave_up(self, pool: StockedPool, place: Place, why: str) -> None:
        """A ticket has ended without a grant."""
        waited = self._clock.elapsed() - place.put_at
        self._add_of("gave up", pool, place, wait_seconds=waited, reason=why)

    def ended(
        self, kind: EventKind, stocks: Iterable[Stock], by: ReleasedBy, reason: str = ""
    ) -> None:
        """Leases were lost or released; those of one grant are one event."""
        together: dict[tuple[str, int], list[Stock]] = {}
        for stock in stocks:
            if stock.lease is not None:
                together.setdefault((stock.pool.type, stock.lease.grant), []).append(stock)
        for alike in together.values():
            self._add_end(kind, alike, by, reason)

    def noted(self, stock: Stock, told: str) -> None:
        """Something was noted at a claim that is good, of which that is told; empty for nothing."""
        if told and stock.lease is not None:
            self._add(
                "noted",
                stock.pool.type,
                stock.claimant,
                names=(stock.name,),
                fences=(stock.lease.fence,),
                ticket=stock.lease.ticket,
                grant=stock.lease.grant,
                reason=told,
            )

    def changed(
        self, kind: EventKind, pool: StockedPool, names: Sequence[str], reason: str = ""
    ) -> None:
        """A pool was made, changed or deleted."""
        self._add(kind, pool.type, names=tuple(names), count=len(names), reason=reason)

    def members_changed(self, changes: Iterable[MembershipChange]) -> None:
        """Names have changed, in a pool or from one to another."""
        for pool_type, names, reason in changes:
            self._add("pool changed", pool_type, names=names, count=len(names), reason=reason)

    def _add_end(self, kind: EventKind, stocks: list[Stock], by: ReleasedBy, reason: str) -> None:
        first = stocks[0]
        assert first.lease is not None
        assert first.claimant is not None
        self._add(
            kind,
            first.pool.type,
            first.claimant,
            names=tuple(stock.name for stock in stocks),
            fences=tuple(stock.lease.fence for stock in stocks if stock.lease is not None),
            ticket=first.lease.ticket,
            grant=first.lease.grant,
            hold_seconds=self._clock.elapsed() - first.granted_at,
            by=by,
            reason=reason,
        )

    def _add_of(self, kind: EventKind, pool: StockedPool, place: Place, **more: object) -> None:
        if place.name is not None:
            more.setdefault("names", (place.name,))
        ticket = place.ticket
        more["build_url"] = build_url_in(ticket.claimant.request.labels)
        self._add(kind, pool.type, ticket.claimant, ticket=ticket.number, **more)

    def _add(
        self,
        kind: EventKind,
        pool_type: str,
        claimant: Claimant | None = None,
        **more: object,
    ) -> None:
        """Write an event at the end, and wake who follows."""
        if claimant is not None:
            more["handle"] = claimant.claim_key.partition("/")[0]
            more["acquisition"] = claimant.acquisition
            more["holder_identity"] = claimant.holder_identity
            more["count"], more["priority"] = claimant.request.count, claimant.request.priority
        wall = self._clock.wall()
        self.add(Event(0, wall, kind, pool_type, **more))  # type: ignore[arg-type]

    def add(self, event: Event) -> None:
        """Write an event at the end, and wake who follows."""
        if is_written(event.type, event.kind):
            self._events.append(event._replace(number=len(self._events) + 1))
            self.wake()


class MemoryEventWatch:
    """Who follows the events, as `EventWatch`.

    Args:
        watches: All of them.
    """

    def __init__(self, watches: list[MemoryEventWatch]) -> None:
        self.wakeup = Wakeup()
        self._watches = watches

    @property
    def fd(self) -> int:
        return self.wakeup.fd

    def clear(self) -> int:
        self.wakeup.clear()
        return 0

    def close(self) -> None:
        self._watches.remove(self)
        self.wakeup.close()
