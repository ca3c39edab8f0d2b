"""The sides of a server's pools."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from leasectl.backends.serve.connection import Calls
from leasectl.backends.serve.protocol import EVENTS_AT_ONCE, Found
from leasectl.backends.serve.watch import ServeWatch
from leasectl.engines.pool_admin import Updated
from leasectl.engines.values import LARGEST_CONTENT, check_changes
from leasectl.state.event import ALL_EVENTS, Event, EventFilter, Missed

if TYPE_CHECKING:
    from leasectl.engines.notes import Notes
    from leasectl.engines.pool_admin import Decide, EventLog, Members, PoolAdmin
    from leasectl.engines.rules.membership import Member, Pools
    from leasectl.engines.values import Guard, ValueChange, Values
    from leasectl.model import Claimant, Process


class ServeSides:
    """The sides of one server's pools; each call of theirs is a request.

    Args:
        calls: To the server.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    @property
    def pools(self) -> PoolAdmin:
        return cast("PoolAdmin", _Pools(self._calls, "pools"))

    @property
    def events(self) -> EventLog:
        return cast("EventLog", _Events(self._calls, "events"))

    @property
    def members(self) -> Members:
        return cast("Members", _Members(self._calls, "members"))

    @property
    def notes(self) -> Notes:
        return cast("Notes", _Notes(self._calls, "notes"))

    @property
    def values(self) -> Values:
        return cast("Values", _Values(self._calls, "values"))


class _Side:
    """One side: a method that it doesn't define is the call of that name."""

    def __init__(self, calls: Calls, side: str) -> None:
        self._calls = calls
        self._side = side

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return partial(self._calls.call, f"{self._side}.{method}")


class _Pools(_Side):
    def looking(self, pool_type: str | None = None) -> AbstractContextManager[object]:
        if pool_type is not None:
            self.pools(pool_type)  # raises if there is none
        return nullcontext()

    def end_early(
        self,
        claim_key: str,
        names: Sequence[str],
        *,
        guard: Process | None,  # a process of this machine, which the server can't see
        reason: str,
        at_once: bool = False,
    ) -> Any:
        return self._calls.call("pools.end_early", claim_key, names, reason=reason, at_once=at_once)


class _Members(_Side):
    """Changes are decided here, and made if the server still has what they were decided by."""

    def update(
        self, names: Sequence[str], decide: Decide, *, claimant: Claimant | None = None
    ) -> Updated:
        while True:
            seen: Pools = self.belonging()
            before: tuple[Member, ...] = self.members(names)
            after = tuple(decide(each, seen) for each in before)
            if claimant is None and before == after:
                return Updated(before, after)
            replaced = self.replace(before, after, seen, claimant)
            if replaced is not None:
                return Updated(before, *replaced)

    def change_belonging(self, change: Callable[[Pools], Pools]) -> None:
        before = self.belonging()
        while not self.replace_belonging(before, change(before)):
            before = self.belonging()


class _Notes(_Side):
    def watch(self, pool_type: str) -> ServeWatch:
        return ServeWatch(self._calls)


class _Values(_Side):
    largest_content = LARGEST_CONTENT

    def change(
        self,
        changes: Sequence[ValueChange],
        *,
        guard: Guard | None = None,
        event: Event | None = None,
    ) -> bool:
        check_changes(changes)
        return bool(self._calls.call("values.change", changes, guard, event))


class _Events(_Side):
    remark = ""

    def read(
        self,
        wanted: EventFilter = ALL_EVENTS,
        *,
        after: int = 0,
        missed: Callable[[Missed], None] | None = None,
    ) -> Iterator[Event]:
        while True:
            found: Found = self._calls.call("events.read", wanted, after)
            if missed is not None:
                for each in found.missed:
                    missed(each)
            yield from found.events
            if len(found.events) < EVENTS_AT_ONCE:
                return
            after = found.events[-1].number

    def latest(self, wanted: EventFilter, number: int, *, only_recent: bool = False) -> list[Event]:
        return list(self._calls.call("events.latest", wanted, number, only_recent))

    def watch(self) -> ServeWatch:
        return ServeWatch(self._calls)
