"""Delete pools, and finish what a killed process left.

One that is to be deleted only if nobody uses it is first `closing`: who looks from then on gets
nothing there. Who has looked before can still claim, until each of its resources has been written
once more; so after that, if none of them is held, none will be, and no deletion is ever undone but
by being called off. Then all flags of names that come in are taken off (`entering`), what was to
move there stays where it is, and one write has it `gone`: that is the deletion, for everybody. What
is left is taken away after that, by whoever comes by. Until then whoever has claimed so sees the
pool like any other, and so does everybody who only looks.

Each that closes a pool does so with a word. Who finds it closing goes on with that, as its closer
may have been killed, and has it `gone` only if it still has the same word: if it was called off in
between, others may have claimed since, so all of it begins anew.

A pool that is being made and isn't complete is deleted just so; who makes it is told.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from leasectl.engines import refusals
from leasectl.engines.cluster.changes import has_state, released, touched, with_member
from leasectl.engines.cluster.entering import Belonging, Entering, all_known
from leasectl.engines.cluster.objects import (
    Change,
    Found,
    PoolObject,
    PoolState,
    ResourceObject,
    Told,
    as_resource,
)
from leasectl.engines.cluster.place import Place, no_pool, too_fast
from leasectl.engines.cluster.turns import in_order
from leasectl.engines.cluster.view import PoolView
from leasectl.engines.rules.events import POOL_DELETED
from leasectl.engines.rules.membership import remove
from leasectl.errors import LeaseError

_MOST_TRIES = 20


class Deletions:
    """Deletes pools of one place.

    Args:
        place: That.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._objects = place.objects
        self._events = place.events
        self._entering = Entering(place)
        self._belonging = Belonging(place)

    def delete(
        self, pool_type: str, *, force: bool, reaped: Callable[[PoolView], PoolView]
    ) -> None:
        """Implement `PoolAdmin.delete_pool`; finish what another process began.

        Args:
            pool_type: Which.
            force: Also if it is used.
            reaped: Gives a pool as it is without what is over in it.
        """
        meant = ""
        for _ in range(_MOST_TRIES):
            pool = self._place.pool_object(pool_type)
            if meant and (pool is None or pool.id.uid != meant):
                return
            if pool is None:
                raise no_pool(self._place, pool_type)
            meant = pool.id.uid
            if pool.state == "open":
                if not force:
                    check_unused(reaped(self._place.pool(pool_type)))
                self._write(pool, "closing", secrets.token_hex(8))
            elif self.end(pool, force=force):
                return
        raise too_fast(f'"{pool_type}"')

    def end(self, pool: PoolObject, *, force: bool) -> bool:
        """Finish the creation or deletion of a pool that isn't open.

        Args:
            pool: As it was seen.
            force: Also if it is used.

        Returns:
            Whether it is gone and nothing is left of it; else something else was done to it.

        Raises:
            NotAllowed: It is used, and granting again.
        """
        if pool.state == "closing":
            if not force:
                try:
                    self._shut_out(pool.type)
                except LeaseError:
                    self._reopen(pool)
                    raise
            self._entering.sweep()
            self._keep_away(pool)
        if pool.state != "gone" and not self._have_gone(pool):
            return False
        self.finish(pool.type)
        return True

    def finish(self, pool_type: str) -> None:
        """Take away what is left of a pool that is gone, the pool itself last."""
        pool = self._place.pool_object(pool_type)
        if pool is None or pool.state != "gone":
            return
        self._entering.sweep()  # whoever was making it sees from then on that it is gone
        for _ in range(_MOST_TRIES):
            known = all_known(self._place)
            there = known.objects.get(pool_type)
            if there is None or there.id.uid != pool.id.uid:
                return  # somebody was faster, and there may be another of that type
            left = [
                each
                for each in known.resources.values()
                if pool_type in (each.member.pool, each.member.moves_to)
            ]
            if not left:
                break
            # As they were seen in what is gone, and no other way.
            steps = [self._out_of(each, pool_type) for each in left]
            for each, is_done in zip(left, self._place.carry_out_all(steps)):
                if is_done and each.member.pool == pool_type:
                    self._place.tell_lost(each)
        else:
            raise too_fast(f'"{pool_type}"')
        self._belonging.forget_default(pool_type)
        view = self._place.pool(pool_type)
        if view.pool is None or view.pool.id.uid != pool.id.uid:
            return
        for ticket in view.tickets.values():
            is_served = view.is_served(ticket)
            told = () if is_served else self._events.withdrawn(ticket, POOL_DELETED)
            self._objects.remove(ticket, as_seen=False, told=told)
        for damaged in view.unreadable.values():
            self._objects.remove(damaged, as_seen=False)
        self._objects.remove(pool, as_seen=False)

    # Step by step

    def _shut_out(self, pool_type: str) -> None:
        """Invalidate the claims of waiters that looked before the pool was closing.

        Where a claim is united with what was seen of the pool, that is done by its closing.
        """
        view = self._place.pool(pool_type)
        check_unused(view)
        for resource in () if self._objects.unites else view.resources.values():
            self._until_so(resource, lambda seen: self._touch(seen, pool_type))

    def _touch(self, seen: ResourceObject, pool_type: str) -> bool:
        if seen.member.pool != pool_type:
            return True
        if seen.claim is not None:
            raise refusals.pool_in_use(pool_type, 1, 0)
        new = touched(seen)

        def is_done(found: Found) -> bool:
            return isinstance(found, ResourceObject) and found.changed == new.changed

        return self._objects.replace(seen, new, is_done).is_done

    def _keep_away(self, pool: PoolObject) -> None:
        """Cancel moves to a pool, unless another has its type by now."""
        for _ in range(_MOST_TRIES):
            coming = self._place.moving_to(pool.type)
            if not coming or not _is_same(self._place.pool_object(pool.type), pool):
                return
            # As they were seen while it was the same.
            self._place.carry_out_all([(self._stay(each), ()) for each in coming])
        raise too_fast(f'"{pool.type}"')

    def _stay(self, seen: ResourceObject) -> Change:
        """What has a name stay that was to move."""
        return Change(seen, with_member(seen, seen.member._replace(moves_to=None)))

    def _out_of(self, seen: ResourceObject, pool_type: str) -> tuple[Change, Sequence[Told]]:
        """What takes a name out of a pool, or has it not move there, and what is told of that."""
        if seen.member.pool != pool_type:
            return self._stay(seen), ()
        after = remove(seen.member, pool_type, force=True)
        told = self._events.ended([seen], by="removal", at=self._events.now())
        return Change(seen, released(seen, after) if after.is_known else None), told

    def _until_so(self, seen: ResourceObject, act: Callable[[ResourceObject], bool]) -> None:
        """Act on a resource as it is; repeat while other writers are faster."""
        for _ in range(_MOST_TRIES):
            if act(seen):
                return
            there = as_resource(self._objects.read(seen.id.name))
            if there is None:
                return
            seen = there
        raise too_fast(f'"{seen.name}"')

    def _have_gone(self, pool: PoolObject) -> bool:
        """Mark a pool as gone, if its state and word are still the same."""
        names = self._names_in(pool.type)
        told: Sequence[Told] = ()
        if pool.state == "closing":  # else it was never there in full
            at = self._events.now()
            told = self._events.of_pool("pool deleted", pool.type, names, at=at)
        for _ in range(_MOST_TRIES):
            there = self._place.pool_object(pool.type)
            if there is None or there.state == "gone":
                return True
            if not _is_same(there, pool):
                return False
            if self._write(there, "gone", there.word, told):
                return True
        raise too_fast(f'"{pool.type}"')

    def _names_in(self, pool_type: str) -> list[str]:
        return sorted(each.name for each in self._place.pool(pool_type).resources.values())

    def _reopen(self, pool: PoolObject) -> None:
        """Reopen a pool that is in use, unless another process has changed its state."""
        for _ in range(_MOST_TRIES):
            there = self._place.pool_object(pool.type)
            if there is None or (there.state, there.word) != (pool.state, pool.word):
                return
            if self._write(there, "open", ""):
                return
        raise too_fast(f'"{pool.type}"')

    def _write(
        self, pool: PoolObject, state: PoolState, word: str, told: Sequence[Told] = ()
    ) -> bool:
        new = pool._replace(state=state, word=word)
        return self._objects.replace(pool, new, has_state(new), told=told).is_done


def _is_same(there: PoolObject | None, pool: PoolObject) -> bool:
    """Return whether a pool is in the state that a deletion or creation left it in."""
    if there is None:
        return False
    return (there.id.uid, there.state, there.word) == (pool.id.uid, pool.state, pool.word)


def check_unused(view: PoolView) -> None:
    """Refuse to delete a pool that is in use.

    Raises:
        NotAllowed: It has holders or waiters.
    """
    held = sum(each.claim is not None for each in view.resources.values())
    waiting = len(in_order(view))
    if held or waiting:
        raise refusals.pool_in_use(view.pool_type, held, waiting)
