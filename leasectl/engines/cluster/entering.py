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
"""

from __future__ import annotations

from collections.abc import Callable

from leasectl.engines import refusals
from leasectl.engines.cluster.changes import never, new_resource, with_belonging, with_changes
from leasectl.engines.cluster.known import Known, beside_names
from leasectl.engines.cluster.objects import (
    BelongingObject,
    Found,
    ResourceObject,
    Selection,
    Written,
    as_resource,
    new_word,
)
from leasectl.engines.cluster.place import Place
from leasectl.engines.rules.membership import Member, Pools
from leasectl.errors import BackendUnreachable

_MOST_TRIES = 20


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
