"""Values, members and notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from leasectl.engines.event_words import belonging_changes, membership_changes
from leasectl.engines.membership import Member, Pools, check_unheld
from leasectl.engines.memory.events import MemoryEvents, MemoryEventWatch
from leasectl.engines.memory.pools import MemoryPools
from leasectl.engines.memory.stock import Stock
from leasectl.engines.memory.store import MemoryStore
from leasectl.engines.notes import Note, NoteChange
from leasectl.engines.pool_admin import Decide, Updated
from leasectl.engines.values import (
    LARGEST_CONTENT,
    Guard,
    Value,
    ValueChange,
    check_changes,
    is_content,
)
from leasectl.model import Claimant, ReleasedBy
from leasectl.state.event import Event


class MemoryMembers:
    """The memberships of one process; any number of threads may use it.

    Args:
        store: What is in its pools.
    """

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._memberships = store.memberships

    def members(self, names: Sequence[str] | None = None) -> tuple[Member, ...]:
        with self._store.lock:
            for pool in self._store.pools.values():
                self._store.expire(pool)
            wanted = self._memberships.names() if names is None else names
            return tuple(map(self._memberships.member, wanted))

    def update(
        self, names: Sequence[str], decide: Decide, *, claimant: Claimant | None = None
    ) -> Updated:
        with self._store.lock:
            before, pools = self.members(names), self._memberships.pools()
            after = tuple(decide(each, pools) for each in before)
            if claimant is not None:
                check_unheld(after)
            self._memberships.write(before, after)
            self._store.events.members_changed(membership_changes(before, after))
            if claimant is None:
                return Updated(before, after)
            leases = self._store.claim_at_once([each.name for each in after], claimant)
            return Updated(before, after, leases)

    def belonging(self) -> Pools:
        with self._store.lock:
            return self._memberships.pools()

    def change_belonging(self, change: Callable[[Pools], Pools]) -> None:
        with self._store.lock:
            before = self._memberships.pools()
            self._memberships.belonging = after = change(before)
            self._store.events.members_changed(belonging_changes(before, after))


class MemoryNotes:
    """The notes of one process; any number of threads may use it.

    Args:
        store: What is in its pools.
    """

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def of_pool(self, pool_type: str) -> tuple[Note, ...]:
        with self._store.lock:
            pool = self._store.pool(pool_type)
            self._store.expire(pool)
            return _noted([pool.stock[name] for name in sorted(pool.held)])

    def of_claims(self, claim_key: str) -> tuple[Note, ...]:
        with self._store.lock:
            return _noted(self._store.claims(claim_key))

    def change(self, changes: Sequence[NoteChange]) -> tuple[bool, ...]:
        with self._store.lock:
            done = tuple(map(self._change, changes))
            self._store.events.wake()
            return done

    def free(self, notes: Sequence[Note], *, by: ReleasedBy) -> tuple[str, ...]:
        with self._store.lock:
            found = [self._claimed(note.name, note.fence, note.text) for note in notes]
            freed = [stock for stock in found if stock is not None]
            self._store.free(freed, by)
            return tuple(stock.name for stock in freed)

    def watch(self, pool_type: str) -> MemoryEventWatch:
        return self._store.events.watch()

    def _change(self, change: NoteChange) -> bool:
        stock = self._claimed(change.name, change.fence, change.before)
        if stock is not None:
            stock.note = change.after
            self._store.events.noted(stock, change.told)
        return stock is not None

    def _claimed(self, name: str, fence: int, text: str | None) -> Stock | None:
        """The resource of a claim that is good, and of which that is noted."""
        stock = self._store.stock_of(name)
        if stock is None or stock.claim_key is None or stock.lease is None:
            return None
        is_good = stock in self._store.claims(stock.claim_key)
        return stock if is_good and (stock.lease.fence, stock.note) == (fence, text) else None


def _noted(stocks: Sequence[Stock]) -> tuple[Note, ...]:
    return tuple(
        Note(stock.pool.type, stock.name, stock.lease.fence, stock.note)
        for stock in stocks
        if stock.lease is not None and stock.note is not None
    )


class _Content(NamedTuple):
    content: bytes
    version: int
    written_at: float
    until: float | None


class MemoryValues:
    """The values of one process; any number of threads may use it.

    Args:
        store: Its pools.
    """

    largest_content = LARGEST_CONTENT

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._contents: dict[str, _Content] = {}
        self._last_version = 0

    def get(self, key: str) -> Value | None:
        with self._store.lock:
            self._drop_old(self._store.clock.elapsed())
            found = self._contents.get(key)
            if found is None:
                return None
            return Value(key, found.content, found.version, found.written_at)

    def read(self, prefix: str) -> tuple[Value, ...]:
        with self._store.lock:
            self._drop_old(self._store.clock.elapsed())
            return tuple(
                Value(key, found.content, found.version, found.written_at)
                for key, found in sorted(self._contents.items())
                if key.startswith(prefix) and not is_content(key)
            )

    def check_room(self) -> None:
        """There is as much as this process may have."""

    def tidy(self) -> None:
        with self._store.lock:
            self._drop_old(self._store.clock.elapsed())

    def change(
        self,
        changes: Sequence[ValueChange],
        *,
        guard: Guard | None = None,
        event: Event | None = None,
    ) -> bool:
        check_changes(changes)
        with self._store.lock:
            self._drop_old(self._store.clock.elapsed())
            if not all(map(self._is_as_it_has_to_be, changes)) or not self._may(guard):
                return False
            for each in changes:
                self._write(each)
            if event is not None:
                self._store.events.add(event)
            if guard is not None and guard.frees:
                claims = self._store.claims(guard.claim_key)
                self._store.free([each for each in claims if each.name == guard.name], "command")
            return True

    def _is_as_it_has_to_be(self, change: ValueChange) -> bool:
        found = self._contents.get(change.key)
        return change.version in (None, 0 if found is None else found.version)

    def _may(self, guard: Guard | None) -> bool:
        if guard is None:
            return True
        return any(
            stock.name == guard.name
            and stock.lease is not None
            and stock.lease.fence == guard.fence
            for stock in self._store.claims(guard.claim_key)
        )

    def _write(self, change: ValueChange) -> None:
        if change.content is None:
            self._contents.pop(change.key, None)
            return
        now, keep = self._store.clock.wall(), change.keep_seconds
        self._last_version += 1
        until = None if keep is None else self._store.clock.elapsed() + keep
        self._contents[change.key] = _Content(change.content, self._last_version, now, until)

    def _drop_old(self, now: float) -> None:
        for key, found in list(self._contents.items()):
            if found.until is not None and found.until <= now:
                del self._contents[key]


class MemorySides:
    """The other sides of one process's pools.

    Args:
        store: What is in them.
    """

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._values = MemoryValues(store)

    @property
    def pools(self) -> MemoryPools:
        return MemoryPools(self._store)

    @property
    def events(self) -> MemoryEvents:
        return self._store.events

    @property
    def members(self) -> MemoryMembers:
        return MemoryMembers(self._store)

    @property
    def notes(self) -> MemoryNotes:
        return MemoryNotes(self._store)

    @property
    def values(self) -> MemoryValues:
        return self._values
