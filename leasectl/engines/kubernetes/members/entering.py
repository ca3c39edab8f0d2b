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

import secrets

from leasectl.engines.kubernetes.objects import resource_bodies
from leasectl.engines.kubernetes.objects.objects import ENTERING, Json, ResourceObject
from leasectl.engines.kubernetes.objects.reading import labels_of, parse_object
from leasectl.engines.kubernetes.objects.recognition import is_made_by, resource_in
from leasectl.engines.kubernetes.objects.store import Store
from leasectl.errors import BackendUnreachable

_MOST_TRIES = 20


class Entering:
    """The flags in one namespace.

    Args:
        store: Where they are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def flag(self, name: str, seen: ResourceObject | None) -> ResourceObject | None:
        """Have a name be flagged.

        Args:
            name: Which.
            seen: Its object as it was seen; None for none.

        Returns:
            It, flagged; None where that isn't so any more.
        """
        if seen is not None and seen.entering:
            return seen
        word = secrets.token_hex(8)
        if seen is None:
            body = resource_bodies.new_entering(name, word)
            return resource_in(self._store.create(body, is_made_by(body)).raw)
        body = resource_bodies.entering(seen, word)
        written = self._store.change(body, lambda raw: labels_of(raw).get(ENTERING) == word)
        return resource_in(written.raw)

    def give_up(self, flagged: ResourceObject) -> None:
        """Nothing comes of it: have no flag stay, unless somebody has done something since."""
        if not flagged.member.is_known:
            self._store.delete(flagged.id, as_seen=True)
        else:
            self._store.change(resource_bodies.entering(flagged, ""), _has_no_flag)

    def sweep(self) -> None:
        """Take all flags off: who has decided by what was before now has to begin anew."""
        for raw in self._store.labelled(ENTERING).items:
            self._sweep(raw)

    def _sweep(self, raw: Json | None) -> None:
        for _ in range(_MOST_TRIES):
            found = None if raw is None else parse_object(raw)
            if raw is None or not isinstance(found, ResourceObject) or not found.entering:
                return
            if not found.member.is_known and found.claim is None:
                if self._store.delete(found.id, as_seen=True):
                    return
            elif (
                self._store.change(resource_bodies.entering(found, ""), _has_no_flag).raw
                is not None
            ):
                return
            raw = self._store.get(found.id.name)
        raise BackendUnreachable("names come and go faster than they are read; try again")


def _has_no_flag(raw: Json) -> bool:
    return ENTERING not in labels_of(raw)
