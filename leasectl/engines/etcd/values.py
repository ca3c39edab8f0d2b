"""Values under keys in etcd.

The content is written as text, after a word by which whoever wrote it knows it again when the
answer was lost. What is kept for a time is attached to an etcd lease of its own.
"""

from __future__ import annotations

import math
import secrets
from base64 import b64decode, b64encode
from collections.abc import Sequence

from leasectl.engines.etcd.claims.claims import EtcdClaims
from leasectl.engines.etcd.claims.writes import Along
from leasectl.engines.etcd.events.events import EtcdEvents
from leasectl.engines.etcd.gateway.gateway import Gateway, new_etcd_lease_id
from leasectl.engines.etcd.gateway.requests import (
    Json,
    KeyValue,
    Outcome,
    delete,
    present,
    put,
    read,
    read_all,
    unchanged,
)
from leasectl.engines.etcd.key_values import read_time, unreadable
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.values import (
    LARGEST_CONTENT,
    Guard,
    Value,
    ValueChange,
    check_changes,
    is_content,
)
from leasectl.state.event import Event
from leasectl.system.clock import Clock
from leasectl.text.properties import MALFORMED


class EtcdValues:
    """The values below one prefix of a cluster.

    Args:
        gateway: The cluster.
        keys: Where things are in it.
        claims: By which changes may be allowed.
        events: Of what happens here.
        clock: Where times come from.
    """

    largest_content = LARGEST_CONTENT

    def __init__(
        self, gateway: Gateway, keys: Keys, claims: EtcdClaims, events: EtcdEvents, *, clock: Clock
    ) -> None:
        self._events = events
        self._gateway = gateway
        self._keys = keys
        self._claims = claims
        self._clock = clock

    def get(self, key: str) -> Value | None:
        (found,) = self._gateway.read(read(self._keys.value(key))).answers
        return None if found.first is None else _parse(found.first, key)

    def read(self, prefix: str) -> tuple[Value, ...]:
        start = self._keys.value("")
        (found,) = self._gateway.read(read_all(start + prefix)).answers
        values = (_parse(kv, kv.key[len(start) :]) for kv in found.items)
        return tuple(each for each in values if not is_content(each.key))

    def check_room(self) -> None:
        """etcd says so itself, with the change."""

    def tidy(self) -> None:
        """etcd does it by itself: what is kept for a time is attached to one of its leases."""

    def change(
        self,
        changes: Sequence[ValueChange],
        *,
        guard: Guard | None = None,
        event: Event | None = None,
    ) -> bool:
        check_changes(changes)
        token = secrets.token_hex(8)
        leases = {
            each.key: new_etcd_lease_id() for each in changes if each.keep_seconds is not None
        }
        for each in changes:
            if each.keep_seconds is not None:
                self._gateway.grant(leases[each.key], math.ceil(each.keep_seconds))
        # Not where nobody has said what came of it: what hangs on them may be kept by now.
        is_done = self._change(changes, guard, event, token, leases)
        if not is_done:
            for etcd_lease_id in leases.values():
                self._gateway.revoke_unused(etcd_lease_id)
        return is_done

    def _change(
        self,
        changes: Sequence[ValueChange],
        guard: Guard | None,
        event: Event | None,
        token: str,
        leases: dict[str, int],
    ) -> bool:
        along = Along(
            tuple(
                unchanged(self._keys.value(each.key), each.version)
                for each in changes
                if each.version is not None
            ),
            tuple(self._write(each, token, leases.get(each.key, 0)) for each in changes),
            () if event is None else (event,),
        )
        if guard is None:
            outcome = self._commit(along, (), changes)
            return outcome.succeeded or self._was_done(outcome, changes, token)
        while True:
            found = self._claims.find(guard.claim_key, guard.name, guard.fence)
            if found is None:
                return self._is_written(changes, token)
            if guard.frees:
                if self._claims.give_back_with(found, frozenset([guard.name]), along):
                    return True
            else:
                guards = (
                    unchanged(found.held.key, found.held.mod_revision),
                    present(self._keys.alive(*found.id)),
                )
                outcome = self._commit(along, guards, changes)
                if outcome.succeeded or self._was_done(outcome, changes, token):
                    return True
            if not self._are_as_they_have_to_be(changes):
                return False

    def _commit(
        self, along: Along, guards: Sequence[Json], changes: Sequence[ValueChange]
    ) -> Outcome:
        guards, reads = (*guards, *along.guards), self._reads(changes)
        return self._events.commit(guards, along.then, reads, events=along.events)

    def _write(self, change: ValueChange, token: str, etcd_lease_id: int) -> Json:
        key = self._keys.value(change.key)
        if change.content is None:
            return delete(key)
        text = f"{token} {self._clock.wall():.6f} {b64encode(change.content).decode()}"
        return put(key, text, etcd_lease_id=etcd_lease_id)

    def _reads(self, changes: Sequence[ValueChange]) -> list[Json]:
        return [read(self._keys.value(each.key)) for each in changes]

    def _was_done(self, outcome: Outcome, changes: Sequence[ValueChange], token: str) -> bool:
        """Whether an earlier try has done it, whose answer was lost."""
        found = [each.first for each in outcome.answers]
        return outcome.repeated and _is_so(found, changes, token)

    def _is_written(self, changes: Sequence[ValueChange], token: str) -> bool:
        """Whether that is there which this very change has written."""
        answers = self._gateway.read(*self._reads(changes)).answers
        return _is_so([each.first for each in answers], changes, token)

    def _are_as_they_have_to_be(self, changes: Sequence[ValueChange]) -> bool:
        answers = self._gateway.read(*self._reads(changes)).answers
        return all(
            each.version in (None, 0 if kv is None else kv.mod_revision)
            for each, kv in zip(changes, (found.first for found in answers))
        )


def _is_so(found: Sequence[KeyValue | None], changes: Sequence[ValueChange], token: str) -> bool:
    """Whether what is there was written, or taken away, by the change with that word."""
    written = [kv is not None and kv.value.startswith(token) for kv in found]
    return any(written) and all(
        is_written if each.content is not None else kv is None
        for is_written, each, kv in zip(written, changes, found)
    )


def _parse(kv: KeyValue, key: str) -> Value:
    try:
        _, written_at, content = kv.value.split(" ")
        return Value(
            key, b64decode(content, validate=True), kv.mod_revision, read_time(float(written_at))
        )
    except MALFORMED as error:
        raise unreadable(kv, error) from error
