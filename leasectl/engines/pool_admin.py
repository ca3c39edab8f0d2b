"""The interfaces for pools, members, values, notes and events.

Events can only be read here: the step that changes something writes its event in the same
transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from leasectl.engines.facts import NO_SETTINGS, Pool, PoolSettings
from leasectl.engines.rules.membership import Member, Pools
from leasectl.model import Claimant, Lease, Process
from leasectl.state.event import ALL_EVENTS, Event, EventFilter, Missed

if TYPE_CHECKING:
    from leasectl.engines.notes import Notes
    from leasectl.engines.values import Values


class EventWatch(Protocol):
    """Tells that there may be more events.

    Attributes:
        fd: Readable when that may be so.
    """

    @property
    def fd(self) -> int: ...

    def clear(self) -> int:
        """Get ready for the next event; the caller has to read again afterwards.

        Returns:
            Events that have come since the last reading have larger numbers; 0 if that isn't known.
        """

    def close(self) -> None:
        """Watch no longer."""


class EventLog(Protocol):
    """The events of an engine's pools, in the order in which they happened.

    Attributes:
        remark: What to tell the user after the events were read; empty for nothing.
    """

    @property
    def remark(self) -> str: ...

    def read(
        self,
        wanted: EventFilter = ALL_EVENTS,
        *,
        after: int = 0,
        missed: Callable[[Missed], None] | None = None,
    ) -> Iterator[Event]:
        """The events that are still kept, the oldest first.

        Args:
            wanted: Which of them.
            after: Only those with a larger number than this.
            missed: Called when some with a larger number aren't kept any more, wanted or not; or
                when the store was restored, and events have smaller numbers from now on.
        """

    def latest(self, wanted: EventFilter, number: int, *, only_recent: bool = False) -> list[Event]:
        """The last events, the newest first: read from the end, and no further than need be.

        Args:
            wanted: Which of them.
            number: At most so many.
            only_recent: Without much ado: of what is kept for long, perhaps only the newer part is
                looked at.
        """

    def last_number(self) -> int:
        """The number of the last event there was; 0 for none."""

    def watch(self) -> EventWatch:
        """Watch for more events from now on; the caller reads once more afterwards."""


class PoolAdmin(Protocol):
    """Makes, changes, shows and deletes an engine's pools.

    Several of its steps are one where they are inside its engine's `atomic`.
    """

    def looking(self, pool_type: str | None = None) -> AbstractContextManager[object]:
        """Read everything inside as of one instant, records included, if the store can do that.

        What has expired, and what dead processes have left, is removed before. Nothing can be
        changed inside, and no other process waits for it.

        Args:
            pool_type: Of which pool; None for all.

        Raises:
            NotFound: No such type.
        """

    def pools(self, pool_type: str | None = None) -> tuple[Pool, ...]:
        """Return all pools, or one.

        Args:
            pool_type: Which; None for all.

        Raises:
            NotFound: There is no such pool.
        """

    def create_pool(
        self, pool_type: str, names: Sequence[str], *, settings: PoolSettings = NO_SETTINGS
    ) -> None:
        """Make a pool; InvalidRequest when it is there or a name is taken."""

    def change_settings(
        self, pool_type: str, settings: PoolSettings, *, seen: PoolSettings | None = None
    ) -> bool:
        """Change the settings of a pool, also for its present waiters.

        Its earlier grants make no waiter wait longer than the new pace. If the new pace is longer,
        it may count from the next grant on only.

        Args:
            pool_type: The pool.
            settings: All of them.
            seen: The earlier settings that they were derived from; None to replace any.

        Returns:
            Whether they were changed; they aren't if another process has changed what was seen.

        Raises:
            NotFound: No such type.
        """

    def end_early(
        self,
        claim_key: str,
        names: Sequence[str],
        *,
        guard: Process | None,
        reason: str,
        at_once: bool = False,
    ) -> tuple[str, ...]:
        """End claims before their time; their holder is told, and can't renew them any more.

        They are kept for their holder, though, until the end of the ttl of their last renewal, or
        until it gives up all that it had (`Engine.free`), or until its guard has ended, whichever
        is first. A claim without ttl and guard is free at once, also if it was being kept so far.

        Args:
            claim_key: Of the claims.
            names: Of the resources.
            guard: The process whose end frees them, as far as the store can see it; None for none.
            reason: Who does this, and why; `Resource.ended` shows it.
            at_once: Free them now, also those that were ended before and are kept, although their
                holder may still use them: exclusion is lost, and only the fence is left.

        Returns:
            The names that were ended, or freed, by this call.
        """

    def delete_pool(self, pool_type: str, *, force: bool) -> None:
        """Remove a pool; NotAllowed when it is in use, unless forced: its leases are lost."""


# Says by `membership` what is to become of a name, or raises what refuses it.
Decide = Callable[[Member, Pools], Member]


class Updated(NamedTuple):
    """What has become of some names.

    Args:
        before: What was known of each.
        after: What is known of each now, in the same order.
        leases: What was claimed with that; empty unless it was to be.
    """

    before: tuple[Member, ...]
    after: tuple[Member, ...]
    leases: tuple[Lease, ...] = ()


class Members(Protocol):
    """Keeps one fact for each name: reads it, and writes what becomes of it, in one step.

    Waiters that the change concerns are woken. What a fact says of a release
    (`membership.after_release`) is part of that release, by whatever process. What it says of the
    end of a lifetime (`after_lifetime`) is done by the first process that looks at the pool after
    that. Several steps are one if they are inside the engine's `atomic`.
    """

    def members(self, names: Sequence[str] | None = None) -> tuple[Member, ...]:
        """Return the facts about names, in their order; or about all names with any facts."""

    def update(
        self, names: Sequence[str], decide: Decide, *, claimant: Claimant | None = None
    ) -> Updated:
        """Change names as a function decides.

        All at once if the store can do that; else one after the other, each in one step.

        Args:
            names: The names; each once.
            decide: May be called again if another process was faster, and has no effects.
            claimant: Holds them all from then on, past queue and pace; None for no holder.

        Returns:
            The names as they are then.

        Raises:
            NotAllowed: Another holder has one that the claimant was to hold.
            LeaseError: The refusal of the function; nothing has changed.
        """

    def belonging(self) -> Pools:
        """What there is beside the names: pools, patterns, and the default pool."""

    def change_belonging(self, change: Callable[[Pools], Pools]) -> None:
        """Change patterns or the default pool as a function decides, see `update`.

        Raises:
            LeaseError: The refusal of the function; nothing has changed.
        """


class Sides(Protocol):
    """The other sides of one store; each is opened, and its modules loaded, when asked for."""

    @property
    def pools(self) -> PoolAdmin:
        """Its pools, to be shown and changed."""

    @property
    def events(self) -> EventLog:
        """What happened in its pools."""

    @property
    def members(self) -> Members:
        """In which pool each name is, and may be."""

    @property
    def notes(self) -> Notes:
        """What is noted at its claims."""

    @property
    def values(self) -> Values:
        """What is kept under keys beside its pools."""
