"""The objects below one prefix of a cluster: `Objects` over keys of etcd; finds lost answers.

A write is one transaction: it guards the key of each object, and writes that key, its copies and
the events that tell of it. So it is all or nothing, and may be tried again whatever became of it:
only one of the tries can be carried out. If none says that it was, one looks, and the object tells
whether it is ours.

A ticket is attached to an etcd lease, and so are two keys beside a claim that has a ttl. A claim
without them is over. A write that leaves a claim to its holder is guarded by them, so nothing that
is over is brought back; a new claim needs no such guard, as what is over never writes its resource.

A revision alone doesn't name a version: after a restore from an older copy the same one comes
again, with another write. So a write that changes resources is guarded by a value, too: that of the
last written one. Values have random words, so who finds it there at its revision has seen all that
was written up to it as it is.

Grants of a pool are numbered in its order: the number of the last one is a key that each claim
guards and writes. Who guesses it wrong tries again by what it is.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from leasectl.engines.cluster.changes import is_carried_out
from leasectl.engines.cluster.objects import (
    MOST_TRIES,
    NOTHING,
    Change,
    Claim,
    Found,
    Happened,
    Identity,
    Kind,
    PoolObject,
    ResourceObject,
    Seen,
    Selection,
    TicketObject,
    Told,
    Written,
)
from leasectl.engines.etcd.answers import EtcdLeaseGone, NoSpace, PermissionDenied
from leasectl.engines.etcd.encoding import decode, encode
from leasectl.engines.etcd.gateway import Gateway, new_etcd_lease_id
from leasectl.engines.etcd.keys import ALIVE, BELONGING, POOL, RESOURCE, TICKET, Keys
from leasectl.engines.etcd.requests import (
    Json,
    KeyValue,
    absent,
    as_of,
    created_at,
    delete,
    has_value,
    none_below,
    present,
    put,
    read,
    read_all,
    read_from,
    revision_in,
    unchanged,
)
from leasectl.engines.etcd.requests import count as count_below
from leasectl.engines.etcd.watching import EtcdWatch
from leasectl.engines.values import LARGEST_CONTENT
from leasectl.errors import AccessRefused, CorruptState, LeaseError, NotAllowed, NotFound
from leasectl.system.afterwards import begin
from leasectl.text.wording import printable

if TYPE_CHECKING:
    from leasectl.engines.etcd.events import EtcdEvents

# How many etcd leases, decoded values, pools of resources and last grants are remembered, each.
_MOST_KNOWN = 4096
# As many as guards and reads of a transaction have room for.
_READ_AT_ONCE = 100


class _Transaction(NamedTuple):
    """The parts of a write.

    Args:
        guards: The guards of the transaction.
        puts, deletes: The writes of the transaction.
        keys: The objects' own keys, in the order of the changes.
        written: The values of these keys; None for one that is deleted.
        lives: The etcd leases that have to exist, with their seconds.
        left: The seconds that are left of etcd leases whose claims are ended by force.
        alive: The etcd leases that a guard already covers.
    """

    guards: list[Json]
    puts: list[Json]
    deletes: list[Json]
    keys: list[str]
    written: list[str | None]
    lives: dict[str, float]
    left: dict[str, int]
    alive: set[str]


class EtcdObjects:
    """The objects below one prefix, as `Objects`.

    Args:
        gateway: The keys of the pools.
        events: Writes events with what they tell of.

    Attributes:
        gateway, keys: As given.
    """

    largest_content = LARGEST_CONTENT
    unites = ends = True
    # To follow a pool costs 0.3 ms an event, here and at etcd (measured), and to begin it ten times
    # that.
    few_next, few_before = 6, 12

    def __init__(self, gateway: Gateway, events: EtcdEvents) -> None:
        self.gateway = gateway
        self.keys = gateway.keys
        self._events = events
        self._lock = threading.Lock()
        # Under the lock:
        self._grants: dict[str, KeyValue | None] = {}  # the numbers of last grants, by pool
        self._lives: dict[str, None] = {}  # the etcd leases that were granted here
        # Without it, as each use is one operation, and what is missing is read again:
        self._watches: set[EtcdWatch] = set()
        self._pools: dict[str, str | None] = {}  # where resources were seen, by object name
        self._decoded: dict[str, tuple[KeyValue, Found]] = {}  # by key: of what, and what

    def limited(self, until: float | None) -> AbstractContextManager[None]:
        return self.gateway.limited(until)

    # Names

    def name_of(self, kind: Kind, *words: str) -> str:
        return "/".join((kind, *words)) if words else BELONGING

    def new_ticket_name(self, pool_type: str) -> str:
        return f"{TICKET}{pool_type}/{os.urandom(8).hex()}"

    def new_life(self) -> str:
        return f"{new_etcd_lease_id():016x}"

    # Reading

    def read(self, name: str) -> Found | None:
        if not name.startswith(RESOURCE):
            (found,) = self.gateway.read(read(self.keys.named(name))).answers
            return None if found.first is None else decode(found.first)
        pool = self._pools.get(name)
        for _ in range(MOST_TRIES):
            at, there, alive = self.gateway.read(
                read(self.keys.at(name)),
                read(self.keys.resource(pool, name)),
                read(self.keys.alive(pool, name)),
            ).answers
            if at.first is None:
                return None
            if there.first is not None and (at.first.value or None) == pool:
                return self._found(there.first, is_alive=alive.first is not None)
            pool = at.first.value or None
        return None

    def list(self, which: Selection) -> Seen:
        if which.entering:  # nothing needs that here
            return Seen((), 0)
        ranges, kinds = self._ranges(which), which.kinds
        if not ranges:
            return self._list_pools(is_belonging="belonging" in kinds)
        of_alive = None if which.pool is None else self.keys.alive(which.pool)
        counted = [] if of_alive is None else [count_below(of_alive)]
        outcome = self.gateway.read(*ranges, *counted)
        items = [kv for answer in outcome.answers[: len(ranges)] for kv in answer.items]
        number = outcome.answers[-1].count if counted else 0
        found = self._all_found(items, of_alive, number, outcome.revision)
        if kinds:
            found = [each for each in found if each.id.name.partition("/")[0] in kinds]
        return Seen(tuple(found), outcome.revision)

    def _all_found(
        self, items: Sequence[KeyValue], of_alive: str | None, number: int, revision: int
    ) -> Sequence[Found]:
        """Read objects, and whether the tickets and claims among them are still alive.

        Args:
            items: The keys of the objects, or copies.
            of_alive: The prefix of the alive keys; None if those are among the items, or elsewhere.
            number: The number of alive keys at the same revision; mostly one for each object.
            revision: That revision.
        """
        beside = {kv.key for kv in items if self._is_alive_key(kv.key)}
        found = [
            self._found(kv, is_alive=True)
            for kv in items
            if kv.key not in beside and not self._note_grants(kv)
        ]
        lives = [key for each in found for key in self.keys.lives(each)[:1]]
        alive = beside
        if of_alive is not None:
            if len(lives) == number:
                return found
            asked = as_of(read_all(of_alive, keys_only=True), revision)
            alive = {kv.key for kv in self.gateway.read(asked).answers[0].items}
        elif not beside:
            alive = {kv.key for kv in self._read_each(lives)}
        return [
            each if not alive.isdisjoint(self.keys.lives(each)) else _over(each) for each in found
        ]

    def glance(self, pool_type: str, count: int) -> Seen | None:
        keys = self.keys
        in_pool, of_alive = keys.pool(pool_type), keys.alive(pool_type)
        outcome = self.gateway.commit(
            [none_below(f"{in_pool}{TICKET}")],
            [
                read(f"{in_pool}pool"),
                read(keys.grants(pool_type)),
                count_below(f"{in_pool}{RESOURCE}"),
                count_below(of_alive),
                read_all(keys.frees(pool_type), limit=count),
            ],
            [read(f"{in_pool}pool"), read_all(f"{in_pool}{RESOURCE}")],
        )
        if not outcome.succeeded:
            pool_kv, listed = outcome.answers
            found = [self._found(kv, is_alive=True) for kv in (*pool_kv.items, *listed.items)]
            return Seen(tuple(found), outcome.revision, has_more_tickets=True)
        pool, grants, resources, alive, free = outcome.answers
        self._note_grants_of(pool_type, grants.first)
        if pool.first is None or len(free.items) < count:
            return None
        if resources.count != free.count + alive.count:
            return None
        items = [self._found(kv, is_alive=True) for kv in (pool.first, *free.items)]
        return Seen(tuple(items), outcome.revision)

    def watch(self, which: Selection, since: int) -> EtcdWatch:
        return EtcdWatch(
            self.gateway,
            self._begins(which),
            since,
            tell=partial(self._happened_to, which),
            opened=self._watches,
        )

    def _happened_to(self, which: Selection, kv: KeyValue, is_gone: bool) -> Happened:
        nothing = Happened("nothing", Identity("", "", kv.mod_revision))
        if self._is_alive_key(kv.key):
            *_, pool_type, _, kind, last = kv.key.split("/")
            name = f"{TICKET}{pool_type}/{last}" if kind == TICKET[:-1] else f"{RESOURCE}{last}"
            return Happened("over", nothing.id._replace(name=name)) if is_gone else nothing
        if self._note_grants(kv):
            return nothing
        if is_gone:
            name = self._name_in(which, kv.key)
            return Happened("gone", nothing.id._replace(name=name)) if name else nothing
        found = self._found(kv, is_alive=True)
        return Happened("there", found.id, found)

    def _name_in(self, which: Selection, key: str) -> str:
        """Return the name of a deleted object, by its key; empty for no object."""
        if which.names:
            return next((each for each in which.names if self.keys.named(each) == key), "")
        rest = key[len(self._begins(which)[0]) :]
        if which.pool is None:
            return rest
        if rest == "pool":
            return f"pool/{which.pool}"
        if rest.startswith(TICKET):
            return f"{TICKET}{which.pool}/{rest[len(TICKET) :]}"
        return rest if rest.startswith(RESOURCE) else ""

    def _begins(self, which: Selection) -> Sequence[str]:
        """Return the prefixes of the keys to watch."""
        if which.names:
            named = [self.keys.named(each) for each in which.names]
            tickets = [each.split("/") for each in which.names if each.startswith(TICKET)]
            return [*named, *(self.keys.alive(parts[1], "/".join(parts)) for parts in tickets)]
        if which.claim:
            return [self.keys.claim(which.claim)]
        assert which.pool is not None, "nobody watches anything else"
        return [self.keys.pool(which.pool)]

    def _ranges(self, which: Selection) -> Sequence[Json]:
        keys, kinds = self.keys, set(which.kinds)
        if which.pool is not None:
            return [read_from(*keys.beside_alive(which.pool))]
        if which.claim:
            return [read_all(keys.claim(which.claim))]
        if which.moves_to is not None:
            return [read_all(keys.coming(which.moves_to))]
        if "values" in kinds:
            return [read_all(keys.values(which.space))]
        beside = [read(keys.belonging)] if "belonging" in kinds else []
        if kinds & {"resource", "ticket"}:
            return [read_all(keys.pools), *beside]
        return []

    def _list_pools(self, *, is_belonging: bool) -> Seen:
        """List pools and the object beside them; each is read at its own revision."""
        outcome = self.gateway.read(
            read_all(self.keys.types, keys_only=True), read(self.keys.belonging)
        )
        types, belonging = outcome.answers
        names = [f"{POOL}{kv.key.rpartition('/')[2]}" for kv in types.items]
        items = belonging.items if is_belonging else ()
        found = [
            self._found(kv, is_alive=True)
            for kv in (*items, *self._read_each(map(self.keys.named, names)))
        ]
        return Seen(tuple(found), outcome.revision)

    def _read_each(self, keys: Iterable[str]) -> Iterator[KeyValue]:
        """Yield those of some keys that exist, in several requests if they are many."""
        asked = list(map(read, keys))
        for first in range(0, len(asked), _READ_AT_ONCE):
            for answer in self.gateway.read(*asked[first : first + _READ_AT_ONCE]).answers:
                yield from answer.items

    def _is_alive_key(self, key: str) -> bool:
        parts = key[len(self.keys.prefix) :].split("/")
        if parts[0] == "in":
            return len(parts) == 5 and parts[2] == ALIVE[:-1]
        return parts[0] == "of" and parts[-2] == ALIVE[:-1]

    def _found(self, kv: KeyValue, *, is_alive: bool) -> Found:
        """Read an object, and remember it and where it is."""
        known, found = self._decoded.get(kv.key, (None, None))
        if found is None or known != kv:
            found = decode(kv)
            if len(self._decoded) >= _MOST_KNOWN:
                self._decoded.clear()
            self._decoded[kv.key] = kv, found
        if isinstance(found, ResourceObject):
            if len(self._pools) >= _MOST_KNOWN:
                self._pools.clear()
            self._pools[found.id.name] = found.member.pool
        return found if is_alive else _over(found)

    def _note_grants(self, kv: KeyValue) -> bool:
        """Note the number of a pool's last grant, if a key is that."""
        parts = kv.key[len(self.keys.prefix) :].split("/")
        if len(parts) != 3 or parts[0] != "in" or parts[2] != "grants":
            return False
        self._note_grants_of(parts[1], kv if kv.value else None)
        return True

    def _note_grants_of(self, pool_type: str, kv: KeyValue | None) -> None:
        with self._lock:
            known = self._grants.get(pool_type)
            if known is None or kv is None or kv.mod_revision > known.mod_revision:
                if len(self._grants) >= _MOST_KNOWN:
                    self._grants.clear()
                self._grants[pool_type] = kv

    # Writing

    def write(self, change: Change) -> Written:
        seen, new, told = change
        seeing = new.pool if seen is None and isinstance(new, TicketObject) else None
        try:
            done = self._commit([change], told, as_seen=True, seeing=seeing)
        except NoSpace:
            if not _only_renews(change) or new is None:
                raise
            # It is kept alive by now, and there is no space for a date.
            there = self.read(new.id.name)
            is_same = there == seen
            return Written(is_same, new if is_same else None, there)
        if done is not None:
            return Written(True, done.objects[0], pool=done.pool)
        found = self.read((new or seen).id.name)  # type: ignore[union-attr]
        if new is None:
            is_gone = found is None or seen is None or found.id.uid != seen.id.uid
            return Written(is_gone, found=found)
        if found is None and isinstance(new, PoolObject):
            self.check()
        if found is not None and is_carried_out(change, found):
            return Written(True, found)
        return Written(False, found=found)

    def remove(self, found: Found, told: Sequence[Told] = ()) -> None:
        there: Found | None = found
        for _ in range(MOST_TRIES):
            if self._commit([Change(there, None)], told) is not None:
                return
            there = self.read(found.id.name)
            if there is None or there.id.uid != found.id.uid:
                return
        raise CorruptState(f"{printable(found.id.name)} changes too fast to be removed; try again")

    def write_together(
        self,
        changes: Sequence[Change],
        *,
        still: Mapping[str, Found | None] = NOTHING,
        unqueued: str | None = None,
        told: Sequence[Told] = (),
    ) -> tuple[Found | None, ...] | None:
        all_told = [*(each for change in changes for each in change.told), *told]
        done = self._commit(changes, all_told, still=still, unqueued=unqueued)
        return None if done is None else done.objects

    def _commit(
        self,
        changes: Sequence[Change],
        told: Sequence[Told],
        *,
        still: Mapping[str, Found | None] = NOTHING,
        as_seen: bool = False,
        seeing: str | None = None,
        unqueued: str | None = None,
    ) -> _Done | None:
        """Carry out changes in one transaction; return None if an object wasn't as it was seen.

        Args:
            changes, told, still, unqueued: See `Objects.write_together`.
            as_seen: A ticket is removed only if it wasn't written since.
            seeing: The pool to read in the same transaction; None for none.
        """
        events = [event for each in told for event in each.events]
        claimed = _claimed_in(changes)
        repeated = False
        for _ in range(MOST_TRIES):
            counted = {each: self._next_grant(each) for each in claimed}
            made = self._transaction(changes, still, counted, as_seen=as_seen)
            events = [
                each._replace(grant=counted[each.type].number)
                if each.kind == "granted" and each.type in counted
                else each
                for each in events
            ]
            if unqueued is not None:
                made.guards.append(none_below(f"{self.keys.pool(unqueued)}{TICKET}"))
            looks: Sequence[Json] = ()
            if seeing is not None:
                of_alive = self.keys.alive(seeing)
                looks = (read_from(*self.keys.beside_alive(seeing)), count_below(of_alive))
            left = self._left(changes)
            counts = [count_below(f"{self.keys.claim(each)}{ALIVE}") for each in left.values()]
            try:
                self._ensure(made.lives)
                outcome = self._events.commit(
                    made.guards,
                    [*made.puts, *made.deletes, *looks, *counts],
                    [read(each.key) for each in counted.values()],
                    events=events,
                )
            except EtcdLeaseGone:
                with self._lock:
                    for life in made.lives:
                        self._lives.pop(life, None)
                return None
            repeated = repeated or outcome.repeated
            if outcome.succeeded:
                for pool_type, each in counted.items():
                    number, at = str(each.number), outcome.revision
                    self._note_grants_of(pool_type, KeyValue(each.key, number, at, at))
                self._revoke(
                    life
                    for life, rest in zip(left, outcome.answers[len(looks) :])
                    if not rest.count
                )
                pool = None
                if looks and len(outcome.answers) >= len(looks):
                    listed, alive = outcome.answers[:2]
                    found = self._all_found(listed.items, of_alive, alive.count, outcome.revision)
                    pool = Seen(tuple(found), outcome.revision)
                written = zip(changes, made.keys, made.written)
                return _Done(tuple(self._made(*each, outcome.revision) for each in written), pool)
            if repeated:
                before = self._made_before(changes)
                if before is not None:
                    return _Done(before)
            grants = [each.first for each in outcome.answers]
            with self._lock:  # what is known may be of before a restore, and larger
                self._grants.update(zip(counted, grants))
            if list(map(revision_in, grants)) == [each.seen for each in counted.values()]:
                return None
        return None

    def _transaction(
        self,
        changes: Sequence[Change],
        still: Mapping[str, Found | None],
        counted: Mapping[str, _Counted],
        *,
        as_seen: bool,
    ) -> _Transaction:
        keys = self.keys
        made = _Transaction([], [], [], [], [], {}, {}, set())
        for name, seen in still.items():
            key = keys.named(name)
            made.guards.append(absent(key) if seen is None else unchanged(key, seen.id.version))
        resources = [each.seen for each in changes if isinstance(each.seen, ResourceObject)]
        if resources:
            last = max(resources, key=lambda each: each.id.version)
            made.guards.append(has_value(keys.main(last), last.raw))
        number = 0
        for seen, new, _ in changes:
            if seen is not None:
                made.guards.append(self._guard(seen, new, as_seen=as_seen))
            before = _keys_with(keys, seen)
            if new is None:
                assert seen is not None
                if counted and isinstance(seen, TicketObject):
                    made.guards.append(present(keys.lives(seen)[0]))
                made.deletes.extend(map(delete, before))
                made.keys.append(keys.main(seen))
                made.written.append(None)
                continue
            if seen is None:
                new = _with_uid(new)
                is_resource = isinstance(new, ResourceObject)
                made.guards.append(absent(keys.at(new.id.name) if is_resource else keys.main(new)))
                if isinstance(new, PoolObject):
                    made.guards.append(none_below(keys.earlier))
            is_claimed = _is_claimed(seen, new)
            if is_claimed and isinstance(new, ResourceObject) and new.member.pool is not None:
                assert new.claim is not None
                grant = counted[new.member.pool].number
                new = new._replace(claim=new.claim._replace(grant=grant))
            value = encode(new, new_claim=number if is_claimed else None)
            number += is_claimed
            there = [keys.main(new), *keys.copies(new)]
            made.puts.extend(put(key, value) for key in there)
            self._put_beside(made, seen, new)
            gone = set(before).difference(_keys_with(keys, new))
            made.deletes.extend(delete(key) for key in before if key in gone)
            made.keys.append(keys.main(new))
            made.written.append(value)
        for each in counted.values():
            made.guards.append(unchanged(each.key, each.seen))
            made.puts.append(put(each.key, str(each.number)))
        return made

    def _guard(self, seen: Found, new: Found | None, *, as_seen: bool) -> Json:
        key = self.keys.main(seen)
        if isinstance(seen, TicketObject) and new is None and not as_seen:
            return created_at(key, seen.place) if seen.place else present(key)
        return unchanged(key, seen.id.version)

    def _put_beside(self, made: _Transaction, seen: Found | None, new: Found) -> None:
        """Write the pointer to a resource, and what is there as long as an object is good."""
        if isinstance(new, TicketObject) and seen is None:
            made.lives[new.life] = new.ttl_seconds
            made.puts.append(put(self.keys.lives(new)[0], "", etcd_lease_id=int(new.life, 16)))
        if isinstance(new, PoolObject):
            if not isinstance(seen, PoolObject) or _paceless(seen) != _paceless(new):
                made.puts.append(put(self.keys.type(new.type), ""))
            return
        if not isinstance(new, ResourceObject):
            return
        before = seen if isinstance(seen, ResourceObject) else None
        if before is None or _takes_rights(before, new):
            made.puts.append(put(self.keys.at(new.id.name), new.member.pool or ""))
        if new.claim is None:
            return
        lives, claim = self.keys.lives(new), new.claim
        kept = None if before is None or _is_claimed(before, new) else before.claim
        if before is not None and kept is not None:
            if claim.ttl_seconds is not None:
                if kept.life not in made.alive:  # what is attached to one goes together
                    made.guards.append(present(self.keys.lives(before)[0]))
                made.alive.add(kept.life)
            if kept.life == claim.life and self.keys.lives(before) == lives:
                return
        if claim.life:
            assert claim.ttl_seconds is not None
            seconds = claim.ttl_seconds
            if kept is not None and claim.ended:
                if kept.life not in made.left:
                    made.left[kept.life] = self.gateway.seconds_left(int(kept.life, 16))
                seconds = min(seconds, made.left[kept.life])
            made.lives[claim.life] = max(seconds, made.lives.get(claim.life, 0.0))
        lease = int(claim.life, 16) if claim.life else 0
        made.puts.extend(put(key, "", etcd_lease_id=lease) for key in lives)

    def _ensure(self, lives: Mapping[str, float]) -> None:
        """Grant the etcd leases of new tickets and claims that weren't granted yet."""
        for life, seconds in lives.items():
            with self._lock:
                is_there = life in self._lives
            if not is_there:
                self.gateway.grant(int(life, 16), math.ceil(seconds))
                with self._lock:
                    self._lives[life] = None
                    while len(self._lives) > _MOST_KNOWN:
                        del self._lives[next(iter(self._lives))]

    def _made(self, change: Change, key: str, value: str | None, revision: int) -> Found | None:
        if value is None:
            return None
        created = change.seen.place if isinstance(change.seen, TicketObject) else revision
        return self._found(KeyValue(key, value, created, revision), is_alive=True)

    def _made_before(self, changes: Sequence[Change]) -> tuple[Found | None, ...] | None:
        """Return the objects if an earlier try whose answer was lost has made the changes."""
        found: list[Found | None] = []
        for each in changes:
            there = self.read((each.new or each.seen).id.name)  # type: ignore[union-attr]
            if each.new is None:
                if there is not None:
                    return None
            elif there is None or not is_carried_out(each, there):
                return None
            found.append(there)
        return tuple(found)

    # Grants

    def _next_grant(self, pool_type: str) -> _Counted:
        with self._lock:
            is_known = pool_type in self._grants
            kv = self._grants.get(pool_type)
        if not is_known:
            (found,) = self.gateway.read(read(self.keys.grants(pool_type))).answers
            kv = found.first
            self._note_grants_of(pool_type, kv)
        number = int(kv.value) if kv is not None and kv.value.isdecimal() else 0
        return _Counted(self.keys.grants(pool_type), revision_in(kv), number + 1)

    def _left(self, changes: Sequence[Change]) -> dict[str, str]:
        """Return the claim keys of claims that are given back, by their etcd leases."""
        left = {}
        for seen, new, _ in changes:
            claim, after = _claim_of(seen), _claim_of(new)
            if claim is not None and after is None and claim.life and not claim.is_over:
                left[claim.life] = claim.claim_key
        return left

    def _revoke(self, lives: Iterable[str]) -> None:
        """Revoke etcd leases that nothing is attached to any more, in the background."""
        for life in lives:
            begin(partial(self.gateway.revoke_unused, int(life, 16)))

    # Other

    def tell(self, told: Sequence[Told]) -> None:
        events = [event for each in told for event in each.events]
        if events:
            self._events.commit((), (), events=events)

    def keep_alive(self, found: TicketObject | ResourceObject) -> bool:
        life = found.life if isinstance(found, TicketObject) else found.claim and found.claim.life
        if not life or not self.gateway.keep_alive(int(life, 16)):
            return False
        if isinstance(found, ResourceObject):
            return True
        # A member that lags doesn't answer that in time, and then its watches aren't believed.
        outcome = self.gateway.read(read(self.keys.main(found)))
        for watch in list(self._watches):
            if watch.member != self.gateway.current or watch.since > outcome.revision:
                watch.cut()
        return outcome.answers[0].first is not None

    def check(self) -> None:
        """See that no earlier format is there."""
        (found,) = self.gateway.read(count_below(self.keys.earlier)).answers
        if found.count:
            raise self._earlier()

    def _earlier(self) -> CorruptState:
        prefix = self.keys.prefix
        return CorruptState(
            f"the pools below {prefix} in etcd are in the format of an earlier leasectl; list "
            "their resources with that version: leasectl status --json; then run: etcdctl del "
            f"--prefix {prefix}; then create the pools: leasectl pool create POOL --names A,B"
        )

    def why_missing(self, name: str, resources: int) -> NotFound | None:
        self.check()
        return None

    def why_unreadable(self, name: str) -> LeaseError:
        return CorruptState(f"etcd: {printable(name)} is another kind of object than expected")

    def is_forbidden(self, error: BaseException) -> bool:
        cause = error.__cause__
        if isinstance(error, AccessRefused) and isinstance(cause, NotAllowed):
            cause = cause.__cause__
        return isinstance(error, NotAllowed) or isinstance(cause, PermissionDenied)


class _Done(NamedTuple):
    """The result of a write.

    Args:
        objects: The objects afterwards, in the order of the changes.
        pool: The pool that was read with it; None for none.
    """

    objects: tuple[Found | None, ...]
    pool: Seen | None = None


class _Counted(NamedTuple):
    """The number of the next grant of a pool.

    Args:
        key: The key with the number of the last grant.
        seen: The revision of that key; 0 if it isn't there.
        number: The number of the next grant.
    """

    key: str
    seen: int
    number: int


def _over(found: Found) -> Found:
    """Return a ticket, or a resource whose claim ends, as it is when that is over."""
    if isinstance(found, TicketObject):
        return found._replace(is_over=True)
    if isinstance(found, ResourceObject) and found.claim and found.claim.ttl_seconds is not None:
        return found._replace(claim=found.claim._replace(is_over=True))
    return found


def _claimed_in(changes: Sequence[Change]) -> list[str]:
    """The pools whose resources are claimed with some changes."""
    pools = [
        new.member.pool
        for seen, new, _ in changes
        if isinstance(new, ResourceObject) and _is_claimed(seen, new)
    ]
    return [each for each in dict.fromkeys(pools) if each is not None]


def _is_claimed(seen: Found | None, new: Found) -> bool:
    """Return whether a change claims a resource anew."""
    before, after = _claim_of(seen), _claim_of(new)
    if before is None or after is None:
        return after is not None
    return (before.claim_key, before.ticket) != (after.claim_key, after.ticket)


def _claim_of(found: Found | None) -> Claim | None:
    return found.claim if isinstance(found, ResourceObject) else None


def _only_renews(change: Change) -> bool:
    """Return whether a change only says when a claim was renewed."""
    seen, (before, after) = change.seen, map(_claim_of, change[:2])
    if not isinstance(seen, ResourceObject) or before is None or after is None:
        return False
    claim = before._replace(renewed=after.renewed, renew_time=after.renew_time)
    return seen._replace(claim=claim) == change.new


def _with_uid(new: Found) -> Found:
    """Return a new resource or pool with a random uid."""
    if not isinstance(new, (ResourceObject, PoolObject)):
        return new
    return new._replace(id=Identity(new.id.name, os.urandom(8).hex()))


def _keys_with(keys: Keys, found: Found | None) -> list[str]:
    """All keys of an object."""
    if found is None:
        return []
    beside = [keys.at(found.id.name)] if isinstance(found, ResourceObject) else []
    if isinstance(found, PoolObject):
        beside += [keys.type(found.type), keys.grants(found.type)]
    return [keys.main(found), *keys.copies(found), *keys.lives(found), *beside]


def _paceless(pool: PoolObject) -> PoolObject:
    """Return a pool without the fields that its grants write."""
    return pool._replace(level=0.0, last_grant="", made="", id=Identity(pool.id.name))


def _takes_rights(before: ResourceObject, after: ResourceObject) -> bool:
    """Return whether a change needs the right to change pools: it moves a name or takes a lease."""
    was, now = before.claim, after.claim
    if before.member._replace(holder=None) != after.member._replace(holder=None):
        return True
    return was is not None and now is not None and was.ended != now.ended
