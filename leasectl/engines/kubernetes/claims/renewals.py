"""Renew a claim: one guarded write for each resource, without a read.

It is written from the object as it was written here last. Where that isn't so any more it is looked
at: a note that somebody has left is no reason not to renew; another's claim is, and so is that it
was ended by force. Deadlines count from before the write, so no answer that is late or lost does
any harm. What is over isn't brought back: it is freed, and said to be lost.

Each resource of a claim is tried, whatever becomes of the others, and none takes the time of the
rest. The first failure is raised in the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

from leasectl.engines.kubernetes.claims.claims import Claims
from leasectl.engines.kubernetes.claims.notes_at import notes_in
from leasectl.engines.kubernetes.objects.bodies import Body, micro_time
from leasectl.engines.kubernetes.objects.objects import Claim, Json, ResourceObject
from leasectl.engines.kubernetes.objects.recognition import is_same, resource_in
from leasectl.engines.kubernetes.objects.resource_bodies import renewed
from leasectl.engines.kubernetes.objects.store import Store
from leasectl.engines.notes import NoteListener
from leasectl.errors import BackendUnreachable, LeaseError
from leasectl.system.clock import Clock

_MOST_TRIES = 10


class Renewals:
    """Renews claims in one namespace.

    Args:
        store: Where they are.
        claims: Those claims.
        clock: Where times come from.

    Attributes:
        noted: Told by each renewal what is noted at what it has renewed.
        seconds: How long a renewal may take, which its resources share; None for no such limit.
    """

    noted: NoteListener = staticmethod(lambda notes: None)
    seconds: float | None = None

    def __init__(self, store: Store, claims: Claims, *, clock: Clock) -> None:
        self._store = store
        self._claims = claims
        self._clock = clock

    def renew(self, claim_key: str, ttl_seconds: float | None = None) -> tuple[str, ...]:
        """As `Engine.renew`."""
        held = self._claims.known(claim_key) or self._claims.of_key(claim_key)
        until = None if self.seconds is None else self._clock.elapsed() + self.seconds
        renewed_ones: list[ResourceObject] = []
        failures: list[LeaseError] = []
        for left, each in zip(range(len(held), 0, -1), held):
            try:
                with self._limited(until, left):
                    done = self._renew(each, ttl_seconds)
            except LeaseError as error:
                failures.append(error)
                continue
            if done is not None:
                renewed_ones.append(done)
        self.noted(notes_in(renewed_ones))
        if failures:
            raise failures[0]
        self._claims.note_complete(claim_key)
        return tuple(each.name for each in renewed_ones)

    def _limited(self, until: float | None, left: int) -> AbstractContextManager[None]:
        """Inside, one of so many resources that are left takes its share of the time."""
        if until is None:
            return contextlib.nullcontext()
        now = self._clock.elapsed()
        return self._store.limited(now + (until - now) / left)

    def _renew(self, seen: ResourceObject, ttl: float | None) -> ResourceObject | None:
        """Give a claim its full time again; returns it as it is then, None where it has gone."""
        first = seen.claim
        for _ in range(_MOST_TRIES):
            claim = seen.claim
            if first is None or claim is None or not is_same(claim, first) or claim.ended:
                break
            if self._claims.is_over(seen):
                there = None if self._claims.end_over(seen) else self._claims.as_it_is(seen)
                if there is None:
                    break
                seen = there
                continue
            sent_at = self._clock.elapsed()
            written = self._store.change(*self._renewed(seen, claim, ttl))
            done = resource_in(written.raw)
            if done is not None:
                self._claims.note(done, sent_at)
                return done
            there = resource_in(written.found)
            if there is None:
                break
            seen = there
        else:
            raise BackendUnreachable(
                f'resource "{seen.name}" is changed faster than it can be renewed; try again'
            )
        self._claims.forget(seen.id.name)
        return None

    def _renewed(
        self, seen: ResourceObject, claim: Claim, ttl: float | None
    ) -> tuple[Body, Callable[[Json], bool]]:
        now = self._clock.wall()
        new = claim._replace(renewed=micro_time(now, after=claim.renewed), renew_time=now)
        if ttl is not None and claim.ttl_seconds is not None:
            new = new._replace(ttl_seconds=ttl)

        def is_ours(raw: Json) -> bool:
            there = resource_in(raw)
            return there is not None and there.claim is not None and there.claim.mark == new.mark

        return renewed(seen, new), is_ours
