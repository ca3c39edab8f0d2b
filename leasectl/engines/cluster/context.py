"""A place of pools, as one state directory uses it: its objects, and what is remembered of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, TypeVar

from leasectl.engines import refusals
from leasectl.engines.cluster.claims import Claims
from leasectl.engines.cluster.objects import (
    MOST_TRIES,
    Change,
    Found,
    Objects,
    PoolObject,
    ResourceObject,
    Selection,
    TicketObject,
    Told,
    Written,
    as_pool,
    as_resource,
    by_fence,
    too_fast,
)
from leasectl.engines.cluster.renewals import Renewals
from leasectl.engines.cluster.session import WaitSession
from leasectl.engines.cluster.view import PoolView
from leasectl.errors import AccessRefused, NotFound

if TYPE_CHECKING:
    from leasectl.engines.cluster.events import ClusterEvents
    from leasectl.engines.cluster.observed import Observed
    from leasectl.engines.contract import LostListener
    from leasectl.system.clock import Clock

F = TypeVar("F", bound=Found)
T = TypeVar("T")

# So many objects may be changed in one write.
MOST_AT_ONCE = 60
# No claim key of this state directory begins with it.
_ELSEWHERE = "@"


class Context:
    """The pools of one place, as one state directory uses them.

    Args:
        objects: What is stored there.
        observed: What was seen of others' lives.
        events: Of what happens there.
        state_id: Names where claim keys are unique.
        lost: Told of claims that were found to be over, or were taken by force.
        clock: Where times come from.
        only_looks: Nothing is written; what is over stays for those who write.
        warn: Told, in a line for people, of what is there and can't be shown; of each thing once.

    Attributes:
        claims: The claims there, and what is remembered of those that were written here.
        renewals: Renews claims.
        session: What all waiters of this process share.
    """

    def __init__(
        self,
        objects: Objects,
        observed: Observed,
        events: ClusterEvents,
        *,
        state_id: str,
        lost: LostListener,
        clock: Clock,
        only_looks: bool = False,
        warn: Callable[[str], object] = lambda text: None,
    ) -> None:
        self.objects = objects
        self.observed = observed
        self.events = events
        self.state_id = state_id
        self.lost = lost
        self.clock = clock
        self.only_looks = only_looks
        self._warn = warn
        self._warned: set[str] = set()
        self.claims = Claims(self)
        self.renewals = Renewals(self)
        self.session = WaitSession(self)

    def warn(self, text: str) -> None:
        """Tell people of something, once."""
        if text not in self._warned:  # a command that follows looks again and again
            self._warned.add(text)
            self._warn(text)

    # Claim keys

    def with_state_id(self, claim_key: str) -> str:
        """Return a claim key with its state id, which makes it unique in its place."""
        if claim_key.startswith(_ELSEWHERE):
            return claim_key[1:]
        return f"{self.state_id}/{claim_key}"

    def is_from_here(self, written: str) -> bool:
        """Return whether a claim key with a state id is of this state directory."""
        return bool(self.state_id) and written.startswith(f"{self.state_id}/")

    def claim_key_of(self, written: str) -> str:
        """Return a claim key without its state id; one of another state directory is marked."""
        state_id, _, claim_key = written.partition("/")
        return claim_key if state_id == self.state_id else _ELSEWHERE + written

    def tell_lost(self, resource: ResourceObject) -> None:
        """Tell the holder of a resource that it isn't theirs any more."""
        if resource.claim is not None and resource.claim.claim_key:  # else it isn't of leasectl
            self.lost(self.claim_key_of(resource.claim.claim_key), [resource.name])

    # Writing

    def change(self, seen: F, decide: Callable[[F], Change | None]) -> Written | None:
        """Change an object; decide anew by what is there, while other writers are faster.

        Args:
            seen: The object as it was seen.
            decide: Returns what is to become of it; None to leave it as it is.

        Returns:
            What was written; None where nothing was, also where there is no such object any more.

        Raises:
            BackendUnreachable: Other writers were faster each time.
        """
        there: Found | None = seen
        for _ in range(MOST_TRIES):
            change = decide(there) if isinstance(there, type(seen)) else None
            if change is None:
                return None
            written = self.objects.write(change)
            if written.is_done:
                return written
            there = written.found
        raise too_fast(f'"{getattr(seen, "name", seen.id.name)}"')

    def write_all(
        self,
        items: Sequence[T],
        change_of: Callable[[T], Change],
        told: Callable[[Sequence[T]], Sequence[Told]] = lambda done: (),
    ) -> list[T]:
        """Write a change of each of several items, in as few writes as may be.

        Args:
            items: Which.
            change_of: Returns the change of an item.
            told: Returns the events of the written items, beside those of each change.

        Returns:
            Those that are written; the objects of the others weren't as they were seen.
        """
        done: list[T] = []
        if len(items) > 1 and not self.objects.unites:
            try:
                for each in items:
                    if self.objects.write(change_of(each)).is_done:
                        done.append(each)
            finally:  # some may have been written, although others couldn't be
                self.objects.tell(told(done))
            return done
        for first in range(0, len(items), MOST_AT_ONCE):
            part = items[first : first + MOST_AT_ONCE]
            changes = [change_of(each) for each in part]
            if len(part) > 1 and self.objects.write_together(changes, told=told(part)) is not None:
                done += part
                continue
            for each, change in zip(part, changes):
                alone = change._replace(told=(*change.told, *told([each])))
                if self.objects.write(alone).is_done:
                    done.append(each)
        return done

    def if_allowed(self, act: Callable[[], bool]) -> bool:
        """Return the result of an act; False if this user isn't allowed it, but others may be."""
        try:
            return act()
        except AccessRefused as refused:
            if not self.objects.is_forbidden(refused):
                raise
            return False

    # Reading

    def pool(self, pool_type: str) -> PoolView:
        """Return a pool as it is now."""
        seen = self.objects.list(Selection(pool=pool_type))
        return PoolView(pool_type).fill(seen.items, seen.version)

    def glance(self, pool_type: str, count: int) -> PoolView | None:
        """Return a pool with only so many free resources, where these may be had at once."""
        seen = self.objects.glance(pool_type, count)
        if seen is None:
            return None
        view = PoolView(pool_type).fill(seen.items, seen.version)
        view.has_more_tickets = seen.has_more_tickets
        return view

    def pool_object(self, pool_type: str) -> PoolObject | None:
        """Return a pool's object as it is now, whatever is being done to it."""
        return as_pool(self.objects.read(self.objects.name_of("pool", pool_type)))

    def resource(self, name: str) -> ResourceObject | None:
        """Return a resource as it is now; None where there is none that can be read."""
        return as_resource(self.objects.read(self.objects.name_of("resource", name)))

    def resources(self, which: Selection) -> list[ResourceObject]:
        """Return the resources that are selected, as they are now."""
        found = map(as_resource, self.objects.list(which).items)
        return [each for each in found if each is not None]

    def moving_to(self, pool_type: str) -> list[ResourceObject]:
        """Return the resources whose release takes them to a pool."""
        found = self.resources(Selection(kinds=("resource",), moves_to=pool_type))
        return [each for each in found if each.member.moves_to == pool_type]

    def tickets(self, claim_key: str) -> list[TicketObject]:
        """Return the tickets that a claim key finds, and those that can't be read."""
        written = self.with_state_id(claim_key)
        found = self.objects.list(Selection(kinds=("ticket",), claim=written)).items
        tickets = [each for each in found if isinstance(each, TicketObject)]
        return [each for each in tickets if each.claim_key in (written, "")]

    def claimed(self, claim_key: str) -> list[ResourceObject]:
        """Return the resources that a claim key finds, also if it expired or was ended by force."""
        written = self.with_state_id(claim_key)
        found = self.resources(Selection(kinds=("resource",), claim=written))
        held = [each for each in found if each.claim and each.claim.claim_key == written]
        return sorted(held, key=by_fence)

    def pool_types(self) -> list[str]:
        """Return the types of all pools, sorted."""
        found = self.objects.list(Selection(kinds=("pool",))).items
        return sorted(
            each.type for each in found if isinstance(each, PoolObject) and each.state == "open"
        )

    def resource_names(self, begin: str, types: Collection[str]) -> list[str]:
        """Return names in pools, sorted.

        Args:
            begin: What they begin with.
            types: Of the pools that they are to be in; none of them for any.
        """
        found = self.resources(Selection(kinds=("resource",)))
        return sorted(
            each.name
            for each in found
            if each.name.startswith(begin)
            and each.member.pool is not None
            and (not types or each.member.pool in types)
        )

    def no_pool(self, pool_type: str) -> NotFound:
        """Return the error for a type without a pool that grants: there is none, or it isn't open.

        Raises:
            NoNamespace: Nor is there the namespace.
        """
        view = self.pool(pool_type)
        if view.pool is not None and view.pool.state in ("making", "closing"):
            is_made = view.pool.state == "making"
            what = "created" if is_made else "deleted"
            then = ", then create it again" if is_made else ""
            return NotFound(
                f'no pool "{pool_type}": it is just being {what}; if the command for that was '
                f"killed, run: leasectl pool delete {pool_type}{then}"
            )
        damaged = self.objects.why_missing(pool_type, len(view.resources))
        if damaged is not None:
            return damaged
        types = self.pool_types()
        if not types:
            self.objects.check()
        return refusals.no_pool(pool_type, types)
