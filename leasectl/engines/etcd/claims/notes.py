"""Notes at claims; each is a key that goes with its claim.

Its text comes after a word by which whoever wrote it knows it again when the answer was lost. With
a note what the claim key finds (``owned/``) is written anew, as it is: so whoever watches that for
a holder is woken, and reads the note with the renewal that it makes then.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Optional

from leasectl.engines.etcd.claims.claims import EtcdClaims, FoundClaim
from leasectl.engines.etcd.claims.writes import Along, write_owned
from leasectl.engines.etcd.events import event_facts
from leasectl.engines.etcd.events.events import EtcdEvents
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import (
    Found,
    Json,
    KeyValue,
    delete,
    present,
    put,
    read,
    read_all,
    revision_in,
    unchanged,
)
from leasectl.engines.etcd.key_values import etcd_lease_id_in, noted_in
from leasectl.engines.etcd.keys import ClaimId, Keys
from leasectl.engines.etcd.pools.listing import check_there
from leasectl.engines.etcd.records import parse_claim
from leasectl.engines.etcd.waiting.change_watch import EtcdChangeWatch
from leasectl.engines.etcd.waiting.targets import Watched
from leasectl.engines.notes import Note, NoteChange, NoteWatch
from leasectl.model import ReleasedBy
from leasectl.state.event import Event
from leasectl.system.clock import Clock

# A transaction may have 128 guards, and as many steps: a note has three of either at most.
_MOST_AT_ONCE = 32
_TRIES_TOGETHER = 3


class _Noted(NamedTuple):
    """A resource that is held: by which claim, and where its note is, if it has one."""

    claim: FoundClaim
    fence: int
    note: KeyValue | None

    @property
    def text(self) -> str | None:
        return None if self.note is None else noted_in(self.note)


class _Try(NamedTuple):
    """One attempt to change a note: what is written where, or None for nothing, and how.

    And at whose claim of what, what wakes its holder, and what is told of it.
    """

    held: str
    name: str
    key: str
    after: str | None
    guards: list[Json]
    then: Json
    wakes: Json
    event: Event | None

    def is_left(self, found: Found, held: Found) -> bool:
        """Tell whether what is found is what it has written.

        Nothing is found also where the name has been freed, and its note has gone with it.
        """
        if self.after is not None:
            return found.first is not None and found.first.value == self.after
        is_held = held.first is not None and self.name in parse_claim(held.first).names
        return found.first is None and is_held


_Change = tuple[NoteChange, Optional[_Noted]]


class EtcdNotes:
    """The notes below one prefix of a cluster.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        claims: At which they are.
        events: Of which there is one for each change.
        clock: Where times come from.
    """

    def __init__(
        self,
        gateway: Gateway,
        keys: Keys,
        claims: EtcdClaims,
        events: EtcdEvents,
        *,
        clock: Clock,
    ) -> None:
        self._gateway = gateway
        self._keys = keys
        self._claims = claims
        self._events = events
        self._clock = clock

    def of_pool(self, pool_type: str) -> tuple[Note, ...]:
        (pool,) = self._gateway.read(read(self._keys.pool(pool_type))).answers
        check_there(self._gateway, self._keys, pool_type, pool.first)
        return _notes(pool_type, self._held(pool_type))

    def of_claims(self, claim_key: str) -> tuple[Note, ...]:
        types = dict.fromkeys(each.pool_type for each in self._claims.index(claim_key))
        mine = self._keys.with_state_id(claim_key)
        return tuple(
            note
            for pool_type in types
            for note in _notes(
                pool_type,
                {n: h for n, h in self._held(pool_type).items() if h.claim.claim.claim_key == mine},
            )
        )

    def change(self, changes: Sequence[NoteChange]) -> tuple[bool, ...]:
        done: list[bool] = []
        for start in range(0, len(changes), _MOST_AT_ONCE):
            part = changes[start : start + _MOST_AT_ONCE]
            are_apart = len({(each.type, each.name) for each in part}) == len(part) > 1
            done += (self._change_some(part) if are_apart else None) or [
                self._change(each, self._held(each.type).get(each.name)) for each in part
            ]
        return tuple(done)

    def _change_some(self, part: Sequence[NoteChange]) -> list[bool] | None:
        """Change in one step what is as it has to be; None if others are at it all the time."""
        for _ in range(_TRIES_TOGETHER):
            held = {pool_type: self._held(pool_type) for pool_type in {c.type for c in part}}
            found = [(each, held[each.type].get(each.name)) for each in part]
            right = [each for each in found if _is_so(*each)]
            done = iter(self._change_together(right))
            changed = [_is_so(*each) and next(done, False) for each in found]
            if any(changed) or not right:
                return changed
        return None

    def _change_together(self, part: Sequence[_Change]) -> list[bool]:
        """Change some in one step; nothing, if any of them isn't as it has to be.

        Where an answer was lost it is told by what is there which of them were changed.
        """
        if not part:
            return []
        tries = [self._try(*each) for each in part]
        outcome = self._events.commit(
            [guard for each in tries for guard in each.guards],
            [*(each.then for each in tries), *_once(each.wakes for each in tries)],
            [read(key) for each in tries for key in (each.key, each.held)],
            events=[each.event for each in tries if each.event is not None],
        )
        if outcome.succeeded:
            return [True] * len(part)
        notes, helds = outcome.answers[::2], outcome.answers[1::2]
        left = [each.is_left(*found) for each, *found in zip(tries, notes, helds)]
        return left if outcome.repeated and any(left) else []

    def free(self, notes: Sequence[Note], *, by: ReleasedBy) -> tuple[str, ...]:
        freed: list[str] = []
        for pool_type in dict.fromkeys(note.type for note in notes):
            wanted = [note for note in notes if note.type == pool_type]
            while True:
                found = self._noted_so(pool_type, wanted)
                claims = {each.claim.id: each.claim for each in found.values()}
                for claim_id, claim in claims.items():
                    freed += self._free(claim, found, claim_id, by)
                wanted = [note for note in wanted if note.name not in freed]
                if not set(self._noted_so(pool_type, wanted)).intersection(found):
                    break
        return tuple(note.name for note in notes if note.name in freed)

    def watch(self, pool_type: str) -> NoteWatch:
        watched = Watched(self._keys.notes(pool_type), puts=True, deletes=True)
        return EtcdChangeWatch(self._gateway, watched)

    def _free(
        self, claim: FoundClaim, found: dict[str, _Noted], claim_id: ClaimId, by: ReleasedBy
    ) -> list[str]:
        """Free what is noted just so of one claim; nothing if any of it has changed."""
        mine = {name: each for name, each in found.items() if each.claim.id == claim_id}
        guards = tuple(
            unchanged(self._keys.note(*claim_id, name), revision_in(each.note))
            for name, each in mine.items()
        )
        is_freed = self._claims.give_back_with(claim, frozenset(mine), Along(guards), by=by)
        return list(mine) if is_freed else []

    def _noted_so(self, pool_type: str, wanted: Iterable[Note]) -> dict[str, _Noted]:
        """Those of some notes that are there, each by its name."""
        held = self._held(pool_type)
        return {
            note.name: held[note.name]
            for note in wanted
            if note.name in held
            and (held[note.name].fence, held[note.name].text) == (note.fence, note.text)
        }

    def _change(self, change: NoteChange, held: _Noted | None) -> bool:
        while _is_so(change, held):
            if any(self._change_together([(change, held)])):
                return True
            held = self._held(change.type).get(change.name)
        return False

    def _try(self, change: NoteChange, held: _Noted | None) -> _Try:
        """What changes a note that is as it has to be."""
        assert held is not None
        claim = held.claim
        key = self._keys.note(*claim.id, change.name)
        expires = claim.claim.lease_duration_seconds is not None
        after = None if change.after is None else f"{secrets.token_hex(8)} {change.after}"
        attached = claim.claim.etcd_lease_id if expires else 0
        told = change.told and event_facts.noted(
            claim.id.pool_type,
            claim.claim,
            change.name,
            now=self._clock.wall(),
            told=change.told,
        )
        return _Try(
            claim.held.key,
            change.name,
            key,
            after,
            [
                unchanged(claim.held.key, claim.held.mod_revision),
                present(self._keys.alive(*claim.id)),
                unchanged(key, revision_in(held.note)),
            ],
            delete(key) if after is None else put(key, after, etcd_lease_id=attached),
            write_owned(self._keys, claim.id.pool_type, claim.claim),
            told or None,
        )

    def _held(self, pool_type: str) -> dict[str, _Noted]:
        """What is held in a pool by claims that are good, by name."""
        keys = self._keys
        helds, alives, notes, now = self._gateway.read(
            read_all(keys.helds(pool_type)),
            read_all(keys.alives(pool_type), keys_only=True),
            read_all(keys.notes(pool_type)),
            self._events.read_now(),
        ).answers
        self._events.note_now(now.first)
        living = {etcd_lease_id_in(kv) for kv in alives.items}
        noted = {kv.key: kv for kv in notes.items}
        found: dict[str, _Noted] = {}
        for kv in helds.items:
            claim = parse_claim(kv)
            if claim.ended or claim.etcd_lease_id not in living:
                continue
            claim_id = ClaimId(pool_type, claim.etcd_lease_id)
            for name, fence in zip(claim.names, claim.fences):
                note = noted.get(keys.note(*claim_id, name))
                found[name] = _Noted(FoundClaim(claim_id, claim, kv), fence, note)
        return found


def _once(steps: Iterable[Json]) -> list[Json]:
    """Each step once: no transaction writes a key twice."""
    found: list[Json] = []
    for step in steps:
        found += [] if step in found else [step]
    return found


def _is_so(change: NoteChange, held: _Noted | None) -> bool:
    """Tell whether a claim and its note are as a change of it wants them."""
    return held is not None and (held.fence, held.text) == (change.fence, change.before)


def _notes(pool_type: str, held: dict[str, _Noted]) -> tuple[Note, ...]:
    return tuple(
        Note(pool_type, name, each.fence, each.text)
        for name, each in sorted(held.items())
        if each.text is not None
    )
