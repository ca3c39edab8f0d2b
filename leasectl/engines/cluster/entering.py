"""Let a name into a pool, although no write is guarded by two objects.

Whether a name may come into a pool depends on more than its own object: the pool has to be there,
and what is said beside pools (`belonging`) mustn't say otherwise. So it takes three steps:

1. the name's object gets a flag, one that isn't there yet is made with it, and in no pool;
2. pools and what is beside them are read, again, and it is decided by that;
3. one write, guarded by the object with the flag, puts it in and takes the flag off.

Whoever changes what is decided by says first, in an object of its own, what is about to be (a pool
that is `closing`, a `pending` word on what belongs where), then *sweeps*: takes the flag off all
that have one, then makes it so. Let F be a step 3 of somebody who has read before that first write.
His flag is older than his reading, and the sweep's list is later than that write: so the sweep sees
the flag, unless F has been done. Sweep and F are guarded by the same version of the same object,
and one of them is carried out. Either F comes before the end of the sweep, that is before the
change, and is right; or it is refused, and he begins anew and reads what is about to be. Who reads
that doesn't decide by it: a pool that isn't open takes no name, and a pending word is first made so
by whoever finds it (`settle`).

So nothing is ever put into a pool that is gone, or that it doesn't belong to by then; whoever is
killed, wherever. A pool that is ended while it is being made is gone with the first of those
writes: what comes into it until the sweep is there for nobody, and is taken out before it goes.

A flag says nothing by itself, so any will do, and that of another as well as one's own: of two who
want the same name neither takes the flag off to set his own, and of their last writes one is
carried out. What the killed leave is a flag, or an object with nothing else: nobody heeds it, the
next sweep or the next who wants that name takes it away.

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

    def beside(self, other: Known) -> Known:
        """The same names, with what another has seen since beside them."""
        return other._replace(resources=self.resources)

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


def being_made(name: str, pool_type: str) -> InvalidRequest:
    """Return the error for a name that is about to be in another pool, which isn't there yet."""
    return InvalidRequest(
        f'resource "{name}" is being put into pool "{pool_type}", which is being created; if '
        f"its creator was killed, end it with: leasectl pool delete {pool_type}"
    )


class Update:
    """What is to become of some names, until all of it is written.

    Args:
        names: Which.
        decide: Says what is to become of each.
        is_claimed: They are all to be claimed with that.
        making: The pool that they are for, if it is being made; else None.

    Attributes:
        known: What it was decided by.
        left: The names that aren't written yet.
    """

    def __init__(
        self,
        names: Sequence[str],
        decide: Decide,
        *,
        is_claimed: bool = False,
        making: PoolObject | None = None,
    ) -> None:
        self.left = list(dict.fromkeys(names))
        self._names = tuple(names)
        self._decide = decide
        self._is_claimed = is_claimed
        self._making = making
        self._before: dict[str, Member] = {}
        self._after: dict[str, Member] = {}
        self._leases: dict[str, tuple[Lease, ...]] = {}

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
                raise being_made(name, taken)
            self._before[name] = known.member(name)
            self._after[name] = self._decide(self._before[name], pools)
            if self._is_claimed:
                check_unheld([self._after[name]])

    def needs_flag(self, name: str) -> bool:
        """Tell whether more than its own object decides what becomes of a name."""
        before, after = self._before[name], self._after[name]
        there = self.known.resources.get(name)
        if after.pool is None or (there is not None and there.member == after):
            return False
        return after.pool != before.pool or after.moves_to not in (None, before.moves_to)

    def after(self, name: str) -> Member:
        """What is to become of it."""
        return self._after[name]

    def note_done(self, name: str, leases: tuple[Lease, ...]) -> None:
        """It is so now, and that was claimed with it."""
        self.left.remove(name)
        self._leases[name] = leases

    def pools_to_tell(self) -> Iterator[str]:
        """Return the pools whose waiters may be met by less, or by names that come."""
        for name in self._leases:
            before, after = self._before[name], self._after[name]
            yield from pools_with_less(before, after)
            if after.moves_to not in (None, before.moves_to):
                yield str(after.moves_to)

    def done(self) -> list[Member]:
        """Return the former memberships of the names that have changed."""
        return [self._before[n] for n in self._leases if self._after[n] != self._before[n]]

    def goes_to(self, name: str) -> list[str]:
        """Return the pools that a name comes to with this, or is to come to with its release."""
        before, after = self._before[name], self._after[name]
        is_new = self._is_claimed or after.pool != before.pool
        pools = [after.pool] if after.pool is not None and is_new else []
        if after.moves_to not in (None, before.moves_to):
            pools.append(str(after.moves_to))
        return pools

    def changes(self, names: Iterable[str] | None = None) -> tuple[list[Member], list[Member]]:
        """Return what was so of some names, and is to be, for events; None: of those written.

        Of a pool that is being made that is one thing, and told of when it is there.
        """
        written = list(self._leases if names is None else names)
        if self._making is not None:
            written = []
        return [self._before[each] for each in written], [self._after[each] for each in written]

    def leases(self) -> list[Lease]:
        """What was claimed with them so far."""
        return [lease for each in self._leases.values() for lease in each]

    def result(self) -> Updated:
        """What has become of them."""
        return Updated(
            tuple(self._before[name] for name in self._names),
            tuple(self._after[name] for name in self._names),
            tuple(lease for name in self._names for lease in self._leases[name]),
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
    """Return what takes a flag off, and a name with it of which nothing else is said."""
    if not flagged.entering:
        return None
    is_needed = flagged.member.is_known or flagged.claim is not None
    return Change(flagged, flagged._replace(entering="") if is_needed else None)


def sweep(context: Context) -> None:
    """Take all flags off: who has decided by what was before now has to begin anew."""
    for each in context.resources(Selection(kinds=("resource",), entering=True)):
        context.change(each, unflagged)


# What is said of where names belong beside pools
#
# It is one object, changed in two steps. First it says what it is about to say (`pending`); then
# all that was decided by what it says now is done or begun anew (the sweep), pools that are being
# made among that; then it says it. A pending word is never taken back, but for a default pool that
# has gone meanwhile. So whoever finds one, because its writer was killed or isn't done yet, does
# the rest, and either of them may be late. Expectations of a manifest are such a word: kubectl has
# announced them and does nothing more.


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
    # If somebody was faster, he has said just that.
    context.objects.write(Change(seen, with_belonging(seen, seen.id.name, pools)))
    return True


def change_belonging(context: Context, change: Callable[[Pools], Pools]) -> tuple[Pools, Pools]:
    """Implement `Members.change_belonging`; return what was so before, and is now.

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
