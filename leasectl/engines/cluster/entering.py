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
by whoever finds it (`Belonging.settle`).

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
from typing import NamedTuple

from leasectl.engines import refusals
from leasectl.engines.cluster.changes import never, new_resource, with_belonging, with_changes
from leasectl.engines.cluster.objects import (
    BelongingObject,
    Found,
    Kind,
    PoolObject,
    ResourceObject,
    Selection,
    Written,
    as_resource,
    new_word,
)
from leasectl.engines.cluster.place import Place
from leasectl.engines.pool_admin import Decide, Updated
from leasectl.engines.rules.membership import Member, Pools, check_unheld, pools_with_less
from leasectl.errors import BackendUnreachable, InvalidRequest, NotMade
from leasectl.model import Lease

_NOT_THERE = ("making", "gone")
_BESIDE: tuple[Kind, ...] = ("pool", "belonging")
_MOST_TRIES = 20


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


def all_known(place: Place) -> Known:
    """All that is known now."""
    return _known(place, "resource", *_BESIDE)


def beside_names(place: Place) -> Known:
    """What there is now beside the names."""
    return _known(place, *_BESIDE)


def _known(place: Place, *kinds: Kind) -> Known:
    seen = place.objects.list(Selection(kinds=kinds))
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

    def changes(self) -> tuple[list[Member], list[Member]]:
        """The same as `changes_of`, of those that are written."""
        return self.changes_of(self._leases)

    def changes_of(self, names: Iterable[str]) -> tuple[list[Member], list[Member]]:
        """What was so of some, and is to be, for who tells of it.

        Of a pool that is being made that is one thing, and told of when it is there.
        """
        written = [] if self._making is not None else list(names)
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


class Entering:
    """The flags in one place.

    Args:
        place: That.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._objects = place.objects

    def flag(self, name: str, seen: ResourceObject | None) -> ResourceObject | None:
        """Flag a name.

        Args:
            name: Which.
            seen: Its object as it was seen; None for none.

        Returns:
            It, flagged; None where that isn't so any more.
        """
        if seen is not None and seen.entering:
            return seen
        word = new_word()
        if seen is None:
            nothing = new_resource(self._objects.name_of("resource", name), Member(name))
            return self._objects.create(nothing._replace(entering=word)).resource
        return self._set(seen, word).resource

    def give_up(self, flagged: ResourceObject) -> None:
        """Take a flag off, unless its object was written since."""
        if not flagged.member.is_known:
            self._objects.remove(flagged, as_seen=True)
        else:
            self._set(flagged, "")

    def sweep(self) -> None:
        """Take all flags off: who has decided by what was before now has to begin anew."""
        for each in self._place.resources(Selection(kinds=("resource",), entering=True)):
            self._sweep(each)

    def _sweep(self, found: ResourceObject | None) -> None:
        for _ in range(_MOST_TRIES):
            if found is None or not found.entering:
                return
            if not found.member.is_known and found.claim is None:
                if self._objects.remove(found, as_seen=True) != "changed":
                    return
            elif self._set(found, "").is_done:
                return
            found = as_resource(self._objects.read(found.id.name))
        raise BackendUnreachable("names come and go faster than they are read; try again")

    def _set(self, seen: ResourceObject, word: str) -> Written:
        def is_done(found: Found) -> bool:
            return isinstance(found, ResourceObject) and found.entering == word

        return self._objects.replace(seen, seen._replace(entering=word), is_done)


class Belonging:
    """What is said of where names belong beside pools: one object, changed in two steps.

    First it says what it is about to say (`pending`); then all that was decided by what it says now
    is done or begun anew (`Entering`), pools that are being made among that; then it says it. A
    pending word is never taken back, but for a default pool that has gone meanwhile. So whoever
    finds one, because its writer was killed or isn't done yet, does the rest, and either of them
    may be late. Expectations of a manifest are such a word: kubectl has announced them and does
    nothing more.

    Args:
        place: Where that is.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._objects = place.objects
        self._name = place.objects.name_of("belonging")

    def settled(self) -> Known:
        """What there is beside names, with nothing pending."""
        for _ in range(_MOST_TRIES):
            known = beside_names(self._place)
            if known.belonging is None or known.belonging.pending is None:
                return known
            self.settle(known.belonging)
        raise _too_fast()

    def change(self, change: Callable[[Pools], Pools]) -> tuple[Pools, Pools]:
        """Implements `Members.change_belonging`; returns what was so before, and is now."""
        for _ in range(_MOST_TRIES):
            known = self.settled()
            wanted = change(known.pools)
            if wanted == known.pools:
                return known.pools, wanted
            pending = self._announce(known, wanted)
            if pending is not None:
                self.settle(pending)
                self._check_done(known, wanted, self.settled())
                return known.pools, wanted
        raise _too_fast()

    def settle(self, seen: BelongingObject) -> None:
        """Carry out a pending change, also one that another process announced."""
        assert seen.pending is not None
        Entering(self._place).sweep()
        # Also names that are in a pool that isn't complete: it was decided on them before.
        for pool in beside_names(self._place).objects.values():
            if pool.state == "making":
                self._objects.replace(pool, with_changes(pool), never)
        pools = seen.pending
        if pools.default is not None and pools.default not in beside_names(self._place).pools.types:
            pools = pools._replace(default=None, grace_seconds=0.0)
        # If somebody was faster, he has said just that.
        self._objects.replace(seen, with_belonging(seen, self._name, pools))

    def forget_default(self, pool_type: str) -> None:
        """Remove a pool that is gone as the default pool."""
        self.change(
            lambda pools: (
                pools._replace(default=None, grace_seconds=0.0)
                if pools.default == pool_type and pool_type not in pools.types
                else pools
            )
        )

    def _announce(self, known: Known, wanted: Pools) -> BelongingObject | None:
        """Announce a change; return None if another writer was faster."""
        before = known.belonging
        if before is not None:
            new = with_belonging(before, self._name, before.pools, pending=wanted)
            written = self._objects.replace(before, new)
        else:
            nothing = Pools(frozenset())
            new = with_belonging(None, self._name, nothing, pending=wanted)
            written = self._objects.create(new)
        found = written.object
        return found if isinstance(found, BelongingObject) and found.pending else None

    def _check_done(self, before: Known, wanted: Pools, after: Known) -> None:
        """See that the new default pool was there until the end.

        Raises:
            NotFound: It was deleted at the same time.
        """
        types = after.pools.types
        if wanted.default not in (None, before.pools.default, *types):
            raise refusals.no_pool(str(wanted.default), sorted(types))


def _too_fast() -> BackendUnreachable:
    return BackendUnreachable(
        "what belongs to which pool changes faster than it is read; try again"
    )
