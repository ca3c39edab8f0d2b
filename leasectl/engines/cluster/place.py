"""A place of pools: its objects, and how they are read and listed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from leasectl.engines import refusals
from leasectl.engines.cluster.objects import (
    MOST_AT_ONCE,
    Change,
    Kind,
    Objects,
    PoolObject,
    ResourceObject,
    Selection,
    TicketObject,
    Told,
    as_pool,
    as_resource,
)
from leasectl.engines.cluster.view import PoolView
from leasectl.errors import BackendUnreachable, NotFound

if TYPE_CHECKING:
    from leasectl.engines.cluster.events import ClusterEvents
    from leasectl.engines.cluster.observed import Observed
    from leasectl.engines.contract import LostListener
    from leasectl.system.clock import Clock


# No claim key of this state directory begins with it.
_ELSEWHERE = "@"


class Place:
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

    def warn(self, text: str) -> None:
        """Tell people of something, once."""
        if text not in self._warned:  # a command that follows looks again and again
            self._warned.add(text)
            self._warn(text)

    # Claim keys

    def with_state_id(self, claim_key: str) -> str:
        """Return what is written of a claim key, so that it is the only one."""
        if claim_key.startswith(_ELSEWHERE):
            return claim_key[1:]
        return f"{self.state_id}/{claim_key}"

    def is_from_here(self, written: str) -> bool:
        """Return whether what is written is of this state directory."""
        return bool(self.state_id) and written.startswith(f"{self.state_id}/")

    def claim_key_of(self, written: str) -> str:
        """Return the reverse: a claim key of this state directory as it is, any other marked."""
        state_id, _, claim_key = written.partition("/")
        return claim_key if state_id == self.state_id else _ELSEWHERE + written

    def tell_lost(self, resource: ResourceObject) -> None:
        """Tell who held something that it isn't theirs any more."""
        if resource.claim is not None and resource.claim.claim_key:  # else it isn't of leasectl
            self.lost(self.claim_key_of(resource.claim.claim_key), [resource.name])

    # Writing

    def carry_out(self, change: Change, told: Sequence[Told] = ()) -> bool:
        """Make one change, and tell of it; return whether its object was as it was seen."""
        objects, (seen, new, is_done) = self.objects, change
        if seen is None:
            return new is None or objects.create(new, is_done, told=told).is_done
        if new is None:
            return objects.remove(seen, as_seen=True, told=told) != "changed"
        return objects.replace(seen, new, is_done, told=told).is_done

    def carry_out_all(self, steps: Sequence[tuple[Change, Sequence[Told]]]) -> list[bool]:
        """Make several changes, in as few writes as may be; tell which of them are made."""
        done: list[bool] = []
        for first in range(0, len(steps), MOST_AT_ONCE):
            part = steps[first : first + MOST_AT_ONCE]
            if self.objects.unites and len(part) > 1:
                told = [each for _, of_step in part for each in of_step]
                if self.objects.write([change for change, _ in part], told=told) is not None:
                    done += [True] * len(part)
                    continue
            done += [self.carry_out(*each) for each in part]
        return done

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
        """Return the tickets that a claim key finds; those that can't be read among them."""
        written = self.with_state_id(claim_key)
        found = self.objects.list(_of_claim(written, "ticket")).items
        tickets = [each for each in found if isinstance(each, TicketObject)]
        return [each for each in tickets if each.claim_key in (written, "")]

    def claimed(self, claim_key: str) -> list[ResourceObject]:
        """Return the resources that a claim key finds, over or ended by force included."""
        written = self.with_state_id(claim_key)
        found = self.resources(_of_claim(written, "resource"))
        held = [each for each in found if each.claim and each.claim.claim_key == written]
        return sorted(held, key=by_fence)


def by_fence(resource: ResourceObject) -> tuple[int, str]:
    """Return what sorts claimed resources as they were claimed."""
    return (resource.claim.fence if resource.claim else 0, resource.name)


def too_fast(what: str, *, done: str = "read") -> BackendUnreachable:
    """Return the error for a write that others are always faster than."""
    return BackendUnreachable(f"{what} changes faster than it is {done}; try again")


def _of_claim(written: str, kind: Kind) -> Selection:
    return Selection(kinds=(kind,), claim=written)


def pool_types(place: Place) -> list[str]:
    """The types of all pools, sorted."""
    found = place.objects.list(Selection(kinds=("pool",))).items
    return sorted(
        each.type for each in found if isinstance(each, PoolObject) and each.state == "open"
    )


def no_pool(place: Place, pool_type: str) -> NotFound:
    """Return the error for a type without a pool that grants: there is none, or it isn't open.

    Raises:
        NoNamespace: Nor is there the namespace.
    """
    view = place.pool(pool_type)
    if view.pool is not None and view.pool.state in ("making", "closing"):
        is_made = view.pool.state == "making"
        why = "yet: it is being made" if is_made else "any more: it is being deleted"
        return NotFound(
            f'no pool "{pool_type}" {why}; if the process that does it was killed, end it with: '
            f"leasectl pool delete {pool_type}"
        )
    damaged = place.objects.why_missing(pool_type, len(view.resources))
    if damaged is not None:
        return damaged
    types = pool_types(place)
    if not types:
        place.objects.check()
    return refusals.no_pool(pool_type, types)


def resource_names(place: Place, begin: str, types: Collection[str]) -> list[str]:
    """Names in pools, sorted.

    Args:
        place: Where they are.
        begin: What they begin with.
        types: Of the pools that they are to be in; none of them for any.
    """
    found = place.resources(Selection(kinds=("resource",)))
    return sorted(
        each.name
        for each in found
        if each.name.startswith(begin)
        and each.member.pool is not None
        and (not types or each.member.pool in types)
    )
