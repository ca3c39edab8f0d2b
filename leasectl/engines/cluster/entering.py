"""Let a name into a pool, although no write is guarded by two objects.

Whether a name may enter a pool depends on more than its own object: the pool has to be there, and
the object beside the pools (default pool and patterns, `Pools`) mustn't decide otherwise. Where the
store unites changes, one write is guarded by all of these objects. Elsewhere, entering takes three
steps:

1. flag the name's object; if there is none, create it with the flag, in no pool;
2. read the pools and the object beside them again, and decide by that;
3. put the name into the pool and remove the flag, in one write guarded by the flagged object.

A process that changes one of these facts first announces the change in its own object (the pool is
`closing`, or a `pending` change of what belongs where). Then it *sweeps*: it removes every flag.
Only then it makes the change.

Why that is enough: let F be a step 3 of a process that read before the announcement. Its flag is
older than its reading, and the sweep's list is later than the announcement. So the sweep sees the
flag, unless F has been carried out. The sweep and F are guarded by the same version of the same
object, so only one of them is carried out. Either F comes before the end of the sweep, and so
before the change, and is right. Or F is refused, and its process begins again and reads the
announcement.
A process that reads an announcement doesn't decide by it: a pool that isn't open takes no name, and
a pending change is carried out first, by the process that finds it (`settle`).

So no name ever enters a pool that is gone, or a pool that it doesn't belong to by then, wherever a
process is killed. A pool that is ended while it is being made is gone with the announcement: names
that enter it until the sweep are there for nobody, and are removed before it goes.

A flag says nothing by itself, so a process may use one that another has set. If two want the same
name, neither replaces the flag, and one of their last writes is carried out. A killed process
leaves a flag, or an object with nothing else. Both are ignored, and removed by the next sweep or by
the next process that wants the name.

`Known` is what one list shows. A name is in the pool that its own object says, as long as that pool
is there. A pool that is incomplete, or deleted in part, has no names for anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from leasectl.engines import refusals
from leasectl.engines.cluster.changes import new_resource, with_belonging, with_changes
from leasectl.engines.cluster.objects import (
    MOST_TRIES,
    BelongingObject,
    Change,
    Kind,
    PoolObject,
    ResourceObject,
    Selection,
    new_word,
    too_fast,
)
from leasectl.engines.pool_admin import Decide, Updated
from leasectl.engines.rules.membership import Member, Pools, check_unheld, pools_with_less
from leasectl.errors import InvalidRequest, NotMade
from leasectl.model import Lease

if TYPE_CHECKING:
    from leasectl.engines.cluster.context import Context
    from leasectl.engines.cluster.ticket import OwnTicket

_NOT_THERE = ("making", "gone")
_BESIDE: tuple[Kind, ...] = ("pool", "belonging")


class Known(NamedTuple):
    """All that is known of names at one time.

    Args:
        version: That time.
        resources: By name.
        pools: What there is beside them; its types are the pools that names may come to.
        belonging: The object that says some of that; None where there is none.
        objects: The pools that there are or were, or will be, by type.
    """

    version: int
    resources: Mapping[str, ResourceObject]
    pools: Pools
    belonging: BelongingObject | None
    objects: Mapping[str, PoolObject]

    def member(self, name: str) -> Member:
        """What is known of a name, as anybody sees it."""
        found = self.resources.get(name)
        if found is None:
            return Member(name)
        if self._state_of(found.member.pool) in _NOT_THERE:
            return Member(name, expected=found.member.expected)
        return found.member

    def is_taken(self, name: str) -> str | None:
        """Return the pool that a name is being put into, if that isn't there yet; else None."""
        found = self.resources.get(name)
        pool = None if found is None else found.member.pool
        return pool if self._state_of(pool) == "making" else None

    def gone(self) -> list[str]:
        """Return the deleted pools that have something left."""
        return sorted(each.type for each in self.objects.values() if each.state == "gone")

    @property
    def floor(self) -> int:
        """The version above which fences of a new pool have to be, after a restore."""
        seen = [each.floor for each in self.objects.values()]
        return max([0 if self.belonging is None else self.belonging.floor, *seen])

    def _state_of(self, pool_type: str | None) -> str:
        found = None if pool_type is None else self.objects.get(pool_type)
        return "open" if found is None else found.state


def all_known(context: Context) -> Known:
    """All that is known now."""
    return _known(context, "resource", *_BESIDE)


def beside_names(context: Context) -> Known:
    """What there is now beside the names."""
    return _known(context, *_BESIDE)


def _known(context: Context, *kinds: Kind) -> Known:
    seen = context.objects.list(Selection(kinds=kinds))
    found = seen.items
    belonging = next((each for each in found if isinstance(each, BelongingObject)), None)
    objects = {each.type: each for each in found if isinstance(each, PoolObject)}
    types = frozenset(each.type for each in objects.values() if each.state == "open")
    pools = Pools(types) if belonging is None else belonging.pools._replace(types=types)
    resources = {each.name: each for each in found if isinstance(each, ResourceObject)}
    return Known(seen.version, resources, pools, belonging, objects)


class Update:
    """What is to become of some names, until all of it is written.

    Args:
        names: Which.
        decide: Says what is to become of each.
        own: The ticket that claims them with that; None for no claim.
        making: The pool that they are for, if it is being made; else None.

    Attributes:
        own: As given.
        known: What it was decided by.
        left: The names that aren't written yet.
        before, after: What was so of each name, and is to be.
        leases: What was claimed with it, of each name that is written.
    """

    def __init__(
        self,
        names: Sequence[str],
        decide: Decide,
        *,
        own: OwnTicket | None = None,
        making: PoolObject | None = None,
    ) -> None:
        self.own = own
        self.left = list(dict.fromkeys(names))
        self.before: dict[str, Member] = {}
        self.after: dict[str, Member] = {}
        self.leases: dict[str, tuple[Lease, ...]] = {}
        self._names = names
        self._decide = decide
        self._making = making

    def decide(self, known: Known) -> None:
        """Decide by what is known by now.

        Raises:
            LeaseError: What is refused.
        """
        self.known = known
        pools = self._pools(known)
        for name in self.left:
            taken = known.is_taken(name)
            if taken is not None and (self._making is None or taken != self._making.type):
                raise InvalidRequest(
                    f'resource "{name}" is being put into pool "{taken}", which is being created; '
                    f"if the command for that was killed, run: leasectl pool delete {taken}"
                )
            self.before[name] = known.member(name)
            self.after[name] = self._decide(self.before[name], pools)
            if self.own is not None:
                check_unheld([self.after[name]])

    def is_to_come_to(self, name: str) -> str | None:
        """Return the pool that a name moves to with its release, if that is new; else None."""
        to = self.after[name].moves_to
        return None if to == self.before[name].moves_to else to

    def needs_flag(self, name: str) -> bool:
        """Tell whether more than its own object decides what becomes of a name."""
        after, there = self.after[name], self.known.resources.get(name)
        if after.pool is None or (there is not None and there.member == after):
            return False
        return after.pool != self.before[name].pool or self.is_to_come_to(name) is not None

    def goes_to(self, name: str) -> set[str]:
        """Return the pools that a name enters with this change, or with its next release."""
        pool = self.after[name].pool
        is_new = self.own is not None or pool != self.before[name].pool
        found = (pool if is_new else None, self.is_to_come_to(name))
        return {each for each in found if each is not None}

    def note_done(self, name: str, leases: tuple[Lease, ...]) -> None:
        """It is so now, and that was claimed with it."""
        self.left.remove(name)
        self.leases[name] = leases

    def pools_to_tell(self) -> Iterator[str]:
        """Return the pools whose waiters may be met by less, or by names that come."""
        for name in self.leases:
            yield from pools_with_less(self.before[name], self.after[name])
            to = self.is_to_come_to(name)
            if to is not None:
                yield to

    def changed(self) -> list[Member]:
        """Return the former memberships of the names that have changed so far."""
        return [self.before[n] for n in self.leases if self.after[n] != self.before[n]]

    def to_tell(self, names: Iterable[str]) -> tuple[list[Member], list[Member]]:
        """Return the former and the new memberships of some names, for events.

        The names of a pool that is being made have one event together, once it is there.
        """
        told = [] if self._making is not None else list(names)
        return [self.before[each] for each in told], [self.after[each] for each in told]

    def result(self) -> Updated:
        """What has become of them."""
        return Updated(
            tuple(self.before[name] for name in self._names),
            tuple(self.after[name] for name in self._names),
            tuple(lease for name in self._names for lease in self.leases[name]),
        )

    def _pools(self, known: Known) -> Pools:
        making = self._making
        if making is None:
            return known.pools
        there = known.objects.get(making.type)
        if there is None or (there.state, there.word) != (making.state, making.word):
            raise NotMade(
                f'pool "{making.type}" was deleted, or created by another process, before this '
                "command had completed it"
            )
        return known.pools._replace(types=known.pools.types | {making.type})


# Flags


def flag(context: Context, name: str, seen: ResourceObject | None) -> ResourceObject | None:
    """Flag a name.

    Args:
        context: Where it is.
        name: Which.
        seen: Its object as it was seen; None for none.

    Returns:
        It, flagged; None where that isn't so any more.
    """
    if seen is not None and seen.entering:
        return seen
    there = seen or new_resource(context.objects.name_of("resource", name), Member(name))
    return context.objects.write(Change(seen, there._replace(entering=new_word()))).resource


def unflagged(flagged: ResourceObject) -> Change | None:
    """Return what removes a flag, and its object with it if that has nothing else."""
    if not flagged.entering:
        return None
    is_needed = flagged.member.is_known or flagged.claim is not None
    return Change(flagged, flagged._replace(entering="") if is_needed else None)


def sweep(context: Context) -> None:
    """Remove all flags: a process that decided by earlier facts has to decide again."""
    for each in context.resources(Selection(kinds=("resource",), entering=True)):
        context.change(each, unflagged)


# The default pool, and the patterns that decide where names belong
#
# They are one object, changed in two steps. First it announces the change (`pending`). Then the
# sweep makes every process decide again that decided by the old facts; so do pools that are being
# made. Then it has the change. An announcement is never taken back, except for a default pool that
# has gone meanwhile. So a process that finds one does the rest, because its writer was killed or
# isn't done yet, and either of them may be late. Expectations of a manifest are an announcement,
# too: kubectl has written them and does nothing more.


def settled(context: Context) -> Known:
    """Return what there is beside names, with nothing pending."""
    for _ in range(MOST_TRIES):
        known = beside_names(context)
        if not settle(context, known):
            return known
    raise too_fast("what belongs to which pool")


def settle(context: Context, known: Known) -> bool:
    """Carry out a pending change, also of another process; return whether there was one."""
    seen = known.belonging
    if seen is None or seen.pending is None:
        return False
    sweep(context)
    # Also names that are in a pool that isn't complete: it was decided on them before.
    beside = beside_names(context)
    for pool in beside.objects.values():
        if pool.state == "making":
            context.objects.write(Change(pool, with_changes(pool)))
    pools = seen.pending
    if pools.default is not None and pools.default not in beside.pools.types:
        pools = pools._replace(default=None, grace_seconds=0.0)
    # If this is refused, another process has written the same.
    context.objects.write(Change(seen, with_belonging(seen, seen.id.name, pools)))
    return True


def change_belonging(context: Context, change: Callable[[Pools], Pools]) -> tuple[Pools, Pools]:
    """Implement `Members.change_belonging`; return the facts before and after.

    Raises:
        NotFound: The new default pool was deleted at the same time.
    """
    for _ in range(MOST_TRIES):
        known = settled(context)
        wanted = change(known.pools)
        if wanted == known.pools:
            return known.pools, wanted
        before = known.belonging
        new = with_belonging(
            before,
            context.objects.name_of("belonging"),
            Pools(frozenset()) if before is None else before.pools,
            pending=wanted,
        )
        if context.objects.write(Change(before, new)).is_done:
            types = settled(context).pools.types
            if wanted.default not in (None, known.pools.default, *types):
                raise refusals.no_pool(str(wanted.default), sorted(types))
            return known.pools, wanted
    raise too_fast("what belongs to which pool")


def forget_default(context: Context, pool_type: str) -> None:
    """Remove a pool that is gone as the default pool."""

    def without(pools: Pools) -> Pools:
        if pools.default != pool_type or pool_type in pools.types:
            return pools
        return pools._replace(default=None, grace_seconds=0.0)

    change_belonging(context, without)
