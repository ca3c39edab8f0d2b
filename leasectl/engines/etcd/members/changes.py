"""What a transaction changes about names: pure functions.

Of each name that is written down which has to be from then on, whatever was there before: so the
same puts right what an older version has left, which knows of none of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from leasectl.engines.etcd.events import event_facts
from leasectl.engines.etcd.gateway.gateway import new_etcd_lease_id
from leasectl.engines.etcd.gateway.requests import (
    Json,
    created_at,
    delete,
    put,
    revision_in,
    unchanged,
)
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.members.records import (
    Bound,
    encode_bound,
    encode_life,
    encode_member,
)
from leasectl.engines.etcd.members.stock import stock_writes
from leasectl.engines.etcd.members.views import MembersView, NameView
from leasectl.engines.etcd.records import encode_free, encode_taken, last_fence
from leasectl.engines.event_words import MembershipChange, membership_changes
from leasectl.engines.membership import Member
from leasectl.state.event import Event


class Renaming(NamedTuple):
    """What becomes of one name.

    Args:
        view: As it was seen.
        after: What is to be so of it.
        word: By which whoever writes that knows it again.
        grace_seconds: For how long it is held back, where it comes by default.
        claim_index: It is claimed with that, as the so-manieth of its claim; None where it isn't.
        life_id: Of the etcd lease that its lifetime is on, if it has another from now on.
        grace_id: Of the etcd lease that its grace is on, likewise.
    """

    view: NameView
    after: Member
    word: str
    grace_seconds: float = 0.0
    claim_index: int | None = None
    life_id: int = 0
    grace_id: int = 0

    @property
    def before(self) -> Member:
        return self.view.member

    @property
    def is_moved(self) -> bool:
        return self.after.pool != self.before.pool

    @property
    def begins_life(self) -> bool:
        """Whether its lifetime counts from now on."""
        joins = self.is_moved or self.after.joined != self.before.joined
        return self.after.lifetime is not None and (joins or self.before.lifetime is None)

    @property
    def begins_grace(self) -> bool:
        """Whether it is held back from now on."""
        comes = self.is_moved or not self.before.by_default
        return self.after.by_default and comes and self.grace_seconds > 0 and not self.view.is_held

    @property
    def is_held_back(self) -> bool:
        return self.begins_grace or (self.after.by_default and self.view.is_held_back)

    @property
    def is_closed(self) -> bool:
        """Whether nobody may have it from then on."""
        return self.is_held_back or not self.after.takes_holders

    def with_leases(self) -> Renaming:
        """With ids for what has to be on an etcd lease."""
        lifetime = self.after.lifetime
        expires = lifetime is not None and lifetime.ttl_seconds is not None
        return self._replace(
            life_id=new_etcd_lease_id() if self.begins_life and expires else 0,
            grace_id=new_etcd_lease_id() if self.begins_grace else 0,
        )

    def operations(self, keys: Keys) -> Iterator[Json]:
        """What is written and taken away."""
        name, old, new = self.after.name, self.before.pool, self.after.pool
        if old is not None and self.is_moved:
            yield from _taken_out(keys, self.view, old)
        yield from stock_writes(keys, self.before, self.after)
        yield from self._moves(keys)
        if new is None:
            yield delete(keys.name(name))
            if self.after.expected is not None:
                yield put(keys.member(name), encode_member(self.after, self.word))
            elif self.view.fact is not None:
                yield delete(keys.member(name))
            return
        if self.is_moved:
            yield put(keys.name(name), encode_taken(new, self.word))
        if self.claim_index is not None:
            yield put(keys.resource(new, name), str(self.claim_index))
        elif self.is_moved or self.view.resource is None:
            yield put(keys.resource(new, name), "")
        yield put(keys.member(name), encode_member(self.after, self.word))
        yield from self._whose(keys, new)
        yield from self._times(keys, new)

    def _moves(self, keys: Keys) -> Iterator[Json]:
        """That it comes, or comes no more, to a pool with its release."""
        name, old, new = self.after.name, self.before.moves_to, self.after.moves_to
        if old is not None and old != new:
            yield delete(keys.coming(old, name))
        if new is not None and self.after.pool is not None:
            yield put(keys.coming(new, name), self.after.pool)

    def _whose(self, keys: Keys, pool: str) -> Iterator[Json]:
        """Whether it is free, and what its release has to heed."""
        name, free, lives = self.after.name, self.view.free, self.after.lifetime is not None
        last_holder, transitions = (
            (None, 0) if free is None else (free.last_holder, free.transitions)
        )
        bound_key = keys.bound(pool, name)
        is_free = not self.view.is_held and self.claim_index is None
        if self.is_closed or lives:
            bound = Bound(self.is_closed, lives)
            if is_free and self.is_closed:
                bound = Bound(self.is_closed, lives, True, last_holder, transitions)
            yield put(bound_key, encode_bound(bound))
        elif self.view.bound is not None and not self.is_moved:
            yield delete(bound_key)
        if self.view.is_held:
            return
        resource = None if self.is_moved else self.view.resource
        free_key = keys.free(pool, 0 if resource is None else last_fence(resource), name)
        if is_free and not self.is_closed:
            yield put(free_key, encode_free(last_holder, transitions, has_life=lives))
        elif free is not None and free.key == free_key:
            yield delete(free_key)

    def _times(self, keys: Keys, pool: str) -> Iterator[Json]:
        """For how long it stays, and is held back."""
        name = self.after.name
        lifetime = self.after.lifetime
        if self.begins_life and lifetime is not None:
            life = encode_life(lifetime)
            yield put(keys.life(pool, name), life, etcd_lease_id=self.life_id)
        elif lifetime is None and self.view.life is not None and not self.is_moved:
            yield delete(keys.life(pool, name))
        if self.begins_grace:
            yield put(keys.coming(pool, name), "")
            yield put(keys.grace(pool, name), "", etcd_lease_id=self.grace_id)
        elif self.view.coming is not None and not self.is_held_back and not self.is_moved:
            yield delete(keys.coming(pool, name))
            yield delete(keys.grace(pool, name))

    def pools_concerned(self) -> Iterator[str]:
        """The types of the pools where somebody may have something now, or no more, by that."""
        before, after = self.before, self.after
        is_open = before.takes_holders and not self.view.is_held_back
        if self.is_moved or is_open is self.is_closed or after.properties != before.properties:
            yield from (each for each in (before.pool, after.pool) if each is not None)
        if after.moves_to is not None and after.moves_to != before.moves_to:
            yield after.moves_to

    def pools_needed(self) -> Iterator[str]:
        """The types of the pools that have to be there for it."""
        before, after = self.before, self.after
        pairs = (
            (before.pool, after.pool),
            (before.moves_to, after.moves_to),
            (before.expected, after.expected),
        )
        yield from (new for old, new in pairs if new is not None and new != old)


def guards_of(keys: Keys, view: MembersView, renamings: Sequence[Renaming]) -> list[Json]:
    """What has to be so still: the names, the pools that they come to, and where names belong."""
    pools = pools_of(view, renamings)
    guards = [guard for each in renamings for guard in each.view.guards(keys)]
    guards += [
        created_at(keys.pool(each), view.records[each].create_revision) for each in sorted(pools)
    ]
    guards.append(unchanged(keys.belonging(), revision_in(view.belonging)))
    return list({str(guard): guard for guard in guards}.values())


def pools_of(view: MembersView, renamings: Sequence[Renaming]) -> set[str]:
    """The types of the pools that have to be there still."""
    needed = {each for renaming in renamings for each in renaming.pools_needed()}
    return needed | _concerned(view, renamings)


def operations_of(keys: Keys, view: MembersView, renamings: Sequence[Renaming]) -> list[Json]:
    """What is done: to the names, and to wake who is concerned."""
    done = [operation for each in renamings for operation in each.operations(keys)]
    return done + [put(keys.pool(each), "") for each in sorted(_concerned(view, renamings))]


def events_of(renamings: Sequence[Renaming], *, now: float, caller: str) -> list[Event]:
    """What is told of that.

    Args:
        renamings: What becomes of names.
        now: Wall clock, in seconds.
        caller: Who does it.
    """
    changes = membership_changes([r.before for r in renamings], [r.after for r in renamings])
    return as_events(changes, now=now, caller=caller)


def as_events(changes: Iterable[MembershipChange], *, now: float, caller: str) -> list[Event]:
    """What has become of pools, as `events_of` has it."""
    return [
        event_facts.of_pool(
            "pool changed", each.type, each.names, now=now, caller=caller, reason=each.reason
        )
        for each in changes
    ]


def _concerned(view: MembersView, renamings: Sequence[Renaming]) -> set[str]:
    wanted = {each for renaming in renamings for each in renaming.pools_concerned()}
    return {each for each in wanted if each in view.pools.types}


def _taken_out(keys: Keys, view: NameView, pool: str) -> Iterator[Json]:
    """What takes a name out of a pool; who holds it is another matter."""
    name = view.member.name
    yield delete(keys.resource(pool, name))
    if view.free is not None and view.free.key and not view.is_closed_free:
        yield delete(view.free.key)
    if view.bound is not None:
        yield delete(keys.bound(pool, name))
    if view.life is not None:
        yield delete(keys.life(pool, name))
    if view.coming is not None:
        yield delete(keys.coming(pool, name))
        yield delete(keys.grace(pool, name))
