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
from collections.abc import Callable

from leasectl.engines import refusals
from leasectl.engines.contract import LostListener
from leasectl.engines.event_words import POOL_DELETED
from leasectl.engines.kubernetes.events.events import KubernetesEvents
from leasectl.engines.kubernetes.members.belonging import Belonging
from leasectl.engines.kubernetes.members.entering import Entering
from leasectl.engines.kubernetes.members.known import all_known
from leasectl.engines.kubernetes.objects import bodies, resource_bodies
from leasectl.engines.kubernetes.objects.names import label_of_type, object_of_pool
from leasectl.engines.kubernetes.objects.objects import (
    CHANGED,
    MOVES_TO,
    Json,
    PoolObject,
    PoolState,
    ResourceObject,
)
from leasectl.engines.kubernetes.objects.reading import annotations_of, parse_object
from leasectl.engines.kubernetes.objects.recognition import is_made_by, resource_in
from leasectl.engines.kubernetes.objects.store import Store
from leasectl.engines.kubernetes.objects.view import PoolView
from leasectl.engines.kubernetes.pools.listing import no_pool
from leasectl.engines.kubernetes.queues.turns import in_order, served_in
from leasectl.engines.membership import remove
from leasectl.errors import BackendUnreachable, LeaseError

_MOST_TRIES = 20


class Deletions:
    """Deletes pools of one namespace.

    Args:
        store: Where they are.
        entering: The flags of names that come into pools.
        belonging: What is said beside pools.
        lost: Told of leases that are taken by force.
        events: Of what happens here.
    """

    def __init__(
        self,
        store: Store,
        entering: Entering,
        belonging: Belonging,
        *,
        lost: LostListener,
        events: KubernetesEvents,
    ) -> None:
        self._store = store
        self._entering = entering
        self._belonging = belonging
        self._lost = lost
        self._events = events

    def delete(
        self, pool_type: str, *, force: bool, reaped: Callable[[PoolView], PoolView]
    ) -> None:
        """Implements `PoolAdmin.delete_pool`; what somebody else has begun is ended.

        Args:
            pool_type: Which.
            force: Also if it is used.
            reaped: Gives a pool as it is without what is over in it.
        """
        meant = ""
        for _ in range(_MOST_TRIES):
            pool = self.pool(pool_type)
            if meant and (pool is None or pool.id.uid != meant):
                return
            if pool is None:
                raise no_pool(self._store, pool_type)
            meant = pool.id.uid
            if pool.state == "open":
                if not force:
                    check_unused(reaped(self._store.pool(pool_type)))
                self._write(pool, "closing", secrets.token_hex(8))
            elif self.end(pool, force=force):
                return
        raise _too_fast(pool_type)

    def end(self, pool: PoolObject, *, force: bool) -> bool:
        """End what somebody has begun with a pool that isn't open.

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
        pool = self.pool(pool_type)
        if pool is None or pool.state != "gone":
            return
        self._entering.sweep()  # whoever was making it sees from then on that it is gone
        for _ in range(_MOST_TRIES):
            known = all_known(self._store)
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
            for each in left:  # as they were seen in what is gone, and no other way
                self._take_out(each, pool_type)
        else:
            raise _too_fast(pool_type)
        self._belonging.forget_default(pool_type)
        view = self._store.pool(pool_type)
        if view.pool is None or view.pool.id.uid != pool.id.uid:
            return
        served = served_in(view)
        for ticket in view.tickets.values():
            taken = self._store.take_away(ticket.id, as_seen=False)
            if taken == "done" and ticket.id.name not in served:
                self._events.withdrawn(ticket, POOL_DELETED)
        for damaged in view.unreadable.values():
            self._store.delete(damaged.id, as_seen=False)
        self._store.delete(pool.id, as_seen=False)

    def pool(self, pool_type: str) -> PoolObject | None:
        """A pool as it is, whatever is being done to it; None where there is none to be read."""
        raw = self._store.get(object_of_pool(pool_type))
        found = None if raw is None else parse_object(raw)
        return found if isinstance(found, PoolObject) else None

    # Step by step

    def _shut_out(self, pool_type: str) -> None:
        """Have nobody claim anything any more who has looked before the pool was closing."""
        view = self._store.pool(pool_type)
        check_unused(view)
        for resource in view.resources.values():
            self._until_so(resource, lambda seen: self._touch(seen, pool_type))

    def _touch(self, seen: ResourceObject, pool_type: str) -> bool:
        if seen.member.pool != pool_type:
            return True
        if seen.claim is not None:
            raise refusals.pool_in_use(pool_type, 1, 0)
        body = resource_bodies.touched(seen)
        said = body["metadata"]["annotations"][CHANGED]
        written = self._store.change(body, lambda raw: annotations_of(raw).get(CHANGED) == said)
        return written.raw is not None

    def _keep_away(self, pool: PoolObject) -> None:
        """Have what was to move to a pool stay where it is, unless it is another by now."""
        for _ in range(_MOST_TRIES):
            found = map(resource_in, self._store.labelled(MOVES_TO, label_of_type(pool.type)).items)
            coming = [each for each in found if each and each.member.moves_to == pool.type]
            if not coming or not _is_same(self.pool(pool.type), pool):
                return
            for each in coming:  # as they were seen while it was the same
                self._stay(each, pool.type)
        raise _too_fast(pool.type)

    def _stay(self, seen: ResourceObject, pool_type: str) -> bool:
        if seen.member.moves_to != pool_type:
            return True
        body = resource_bodies.with_member(seen, seen.member._replace(moves_to=None))
        return self._store.change(body, is_made_by(body)).raw is not None

    def _take_out(self, seen: ResourceObject, pool_type: str) -> bool:
        if seen.member.pool != pool_type:
            return self._stay(seen, pool_type)
        after, at = remove(seen.member, pool_type, force=True), self._events.now()
        if not after.is_known:
            is_done = self._store.delete(seen.id, as_seen=True)
        else:
            body = resource_bodies.released(seen, after)
            is_done = self._store.change(body, is_made_by(body)).raw is not None
        if is_done and seen.claim is not None and seen.claim.claim_key:
            self._events.ended([seen], by="removal", at=at)
            self._lost(self._store.claim_key_of(seen.claim.claim_key), [seen.name])
        return is_done

    def _until_so(self, seen: ResourceObject, act: Callable[[ResourceObject], bool]) -> None:
        """Do something to a resource as it is, until nobody was faster."""
        for _ in range(_MOST_TRIES):
            if act(seen):
                return
            there = resource_in(self._store.get(seen.id.name))
            if there is None:
                return
            seen = there
        raise _too_fast(seen.name)

    def _have_gone(self, pool: PoolObject) -> bool:
        """Have a pool be gone, if it is still what it was to become that by the same word."""
        at, names = self._events.now(), self._names_in(pool.type)
        for _ in range(_MOST_TRIES):
            there = self.pool(pool.type)
            if there is None or there.state == "gone":
                return True
            if not _is_same(there, pool):
                return False
            if self._write(there, "gone", there.word):
                if pool.state == "closing":  # else it was never there in full
                    self._events.of_pool("pool deleted", pool.type, names, at=at)
                return True
        raise _too_fast(pool.type)

    def _names_in(self, pool_type: str) -> list[str]:
        return sorted(each.name for each in self._store.pool(pool_type).resources.values())

    def _reopen(self, pool: PoolObject) -> None:
        """Have a pool grant again that is used, unless somebody else has seen to it."""
        for _ in range(_MOST_TRIES):
            there = self.pool(pool.type)
            if there is None or (there.state, there.word) != (pool.state, pool.word):
                return
            if self._write(there, "open", ""):
                return
        raise _too_fast(pool.type)

    def _write(self, pool: PoolObject, state: PoolState, word: str) -> bool:
        def is_ours(raw: Json) -> bool:
            found = parse_object(raw)
            return isinstance(found, PoolObject) and (found.state, found.word) == (state, word)

        return self._store.change(bodies.in_state(pool, state, word), is_ours).raw is not None


def _is_same(there: PoolObject | None, pool: PoolObject) -> bool:
    """Tell whether nothing has become of a pool since somebody began with it."""
    if there is None:
        return False
    return (there.id.uid, there.state, there.word) == (pool.id.uid, pool.state, pool.word)


def check_unused(view: PoolView) -> None:
    """Refuse to delete a pool that somebody uses.

    Raises:
        NotAllowed: Somebody holds something of it, or waits for that.
    """
    held = sum(each.claim is not None for each in view.resources.values())
    waiting = len(in_order(view))
    if held or waiting:
        raise refusals.pool_in_use(view.pool_type, held, waiting)


def _too_fast(what: str) -> BackendUnreachable:
    return BackendUnreachable(f'"{what}" changes faster than it is read; try again')
