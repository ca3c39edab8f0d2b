"""Where names belong beside pools: one object, changed in two steps.

First it says what it is about to say (`pending`); then all that was decided by what it says now is
done or begun anew (`entering`), pools that are being made among that; then it says it. A pending
word is never taken back, but for a default pool that has gone meanwhile. So whoever finds one,
because its writer was killed or isn't done yet, does the rest, and either of them may be late.
Expectations of a manifest are such a word: kubectl has announced them and does nothing more.
"""

from __future__ import annotations

from collections.abc import Callable

from leasectl.engines import refusals
from leasectl.engines.kubernetes.members.entering import Entering
from leasectl.engines.kubernetes.members.known import Known, beside_names
from leasectl.engines.kubernetes.objects import bodies
from leasectl.engines.kubernetes.objects.objects import BELONGING, BelongingObject, Json
from leasectl.engines.kubernetes.objects.reading import annotations_of, parse_object
from leasectl.engines.kubernetes.objects.recognition import is_made_by
from leasectl.engines.kubernetes.objects.store import Store, Written
from leasectl.engines.membership import Pools
from leasectl.errors import BackendUnreachable

_MOST_TRIES = 20


class Belonging:
    """What is said of where names belong, in one namespace.

    Args:
        store: Where that is.
        entering: The flags of names that come into pools.
    """

    def __init__(self, store: Store, entering: Entering) -> None:
        self._store = store
        self._entering = entering

    def settled(self) -> Known:
        """What there is beside names, with nothing pending."""
        for _ in range(_MOST_TRIES):
            known = beside_names(self._store)
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
        """Have what is pending be said, whoever has announced it."""
        assert seen.pending is not None
        self._entering.sweep()
        # Also names that are in a pool that isn't complete: it was decided on them before.
        for pool in beside_names(self._store).objects.values():
            if pool.state == "making":
                self._store.change(bodies.changed(pool), lambda raw: False)
        pools = seen.pending
        if pools.default is not None and pools.default not in beside_names(self._store).pools.types:
            pools = pools._replace(default=None, grace_seconds=0.0)
        # If somebody was faster, he has said just that.
        self._write(bodies.with_belonging(seen, pools))

    def forget_default(self, pool_type: str) -> None:
        """A pool is gone: it takes nothing any more of what nobody has claimed."""
        self.change(
            lambda pools: (
                pools._replace(default=None, grace_seconds=0.0)
                if pools.default == pool_type and pool_type not in pools.types
                else pools
            )
        )

    def _announce(self, known: Known, wanted: Pools) -> BelongingObject | None:
        """Say what is about to be; None where somebody was faster."""
        before = known.belonging
        if before is not None:
            written = self._write(bodies.with_belonging(before, before.pools, pending=wanted))
        else:
            nothing = Pools(frozenset())
            body = bodies.with_belonging(None, nothing, pending=wanted)
            written = self._store.create(body, is_made_by(body))
        found = None if written.raw is None else parse_object(written.raw)
        return found if isinstance(found, BelongingObject) and found.pending else None

    def _write(self, body: bodies.Body) -> Written:
        said = body["metadata"]["annotations"][BELONGING]

        def is_ours(raw: Json) -> bool:
            return bool(annotations_of(raw).get(BELONGING) == said)

        return self._store.change(body, is_ours)

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
