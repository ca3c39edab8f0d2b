"""Renew a claim: one guarded write for each resource, without a read.

A renewal is written from the object as it was last written here. If that is refused, the object is
read: a note that another process has left is no reason not to renew. Another's claim is one, and so
is an end by force. Deadlines count from before the write, so an answer that is late or lost does no
harm. A claim whose time is over isn't renewed: it is freed, and reported as lost.

Each resource of a claim is tried, whatever happens to the others, and none takes the time of the
rest. The first failure is raised at the end.

If another process has left a note on a Lease since it was written here, the answer is about to
write that Lease once more. A caller that can come back soon (a keeper) puts its renewal off until
then:

=====================  ===============================================================
first call             renews the others, and tells of the notes
answer (`notes`)       writes the answer, and renews with the same write
second call, soon      looks at what was put off; renews what no answer has renewed
=====================  ===============================================================

The time of each Lease counts from before the first call, whichever write renews it. If the second
call is late, it renews everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from leasectl.engines.cluster.claims import notes_in
from leasectl.engines.cluster.objects import (
    MOST_TRIES,
    Change,
    Claim,
    ResourceObject,
    as_resource,
    is_same,
    too_fast,
)
from leasectl.engines.notes import NoteListener
from leasectl.errors import LeaseError

if TYPE_CHECKING:
    from leasectl.engines.cluster.context import Context


class _PutOff(NamedTuple):
    """What a renewal has put off.

    Args:
        began_at: When it began, on the elapsed clock.
        good_until: When all has to be renewed instead, on the elapsed clock.
        done: The names that it has renewed.
        rest: What it has put off, as it was seen.
    """

    began_at: float
    good_until: float
    done: Sequence[str]
    rest: Sequence[ResourceObject]


class Renewals:
    """Renews claims in one place.

    Args:
        context: Of that place.

    Attributes:
        noted: Told by each renewal what is noted at what it has renewed.
        seconds: How long a renewal may take, which its resources share; None for no such limit.
        put_off: Called if some of a renewal was put off, and it is to be repeated soon; None to put
            nothing off.
    """

    noted: NoteListener = staticmethod(lambda notes: None)
    seconds: float | None = None
    put_off: Callable[[], object] | None = None

    def __init__(self, context: Context) -> None:
        self._context = context
        self._objects = context.objects
        self._claims = context.claims
        self._clock = context.clock
        self._put_off: dict[str, _PutOff] = {}  # by claim key

    def renew(self, claim_key: str, ttl_seconds: float | None = None) -> tuple[str, ...]:
        """Implements `Engine.renew`."""
        before = self._put_off.pop(claim_key, None)
        if before is not None and self._clock.elapsed() < before.good_until:
            return self._renew_the_rest(before)
        return self._renew_all(claim_key, ttl_seconds)

    def _renew_all(self, claim_key: str, ttl_seconds: float | None) -> tuple[str, ...]:
        began_at = self._clock.elapsed()
        put_off: list[ResourceObject] = []
        held = self._claims.known(claim_key) or self._context.claimed(claim_key)
        done, failure = self._renew_each(
            held, began_at, lambda seen: self._renew(seen, ttl_seconds, put_off)
        )
        if put_off and self.put_off is not None and failure is None:
            names = {each.name for each in put_off}
            done_by_then = [each.name for each in done if each.name not in names]
            good_until = began_at + (self.seconds or 0.0) / 2
            self._put_off[claim_key] = _PutOff(began_at, good_until, done_by_then, put_off)
            self.put_off()
        self.noted(notes_in(done))
        if failure is not None:
            raise failure
        self._claims.note_complete(claim_key)
        return tuple(each.name for each in done)

    def _renew_the_rest(self, before: _PutOff) -> tuple[str, ...]:
        """Renew what was put off, unless its answer has."""
        began_at = before.began_at
        done, failure = self._renew_each(
            before.rest, began_at, lambda seen: self._renew_unless_answered(seen, began_at)
        )
        self.noted(notes_in(done))
        if failure is not None:
            raise failure
        return (*before.done, *(each.name for each in done))

    def _renew_each(
        self,
        held: Sequence[ResourceObject],
        began_at: float,
        renew: Callable[[ResourceObject], ResourceObject | None],
    ) -> tuple[list[ResourceObject], LeaseError | None]:
        """Renew some, each in its share of the time; return those, and the first failure."""
        done, first_failure = [], None
        for number, each in enumerate(held):
            limited: AbstractContextManager[None] = nullcontext()  # the caller's holds
            if self.seconds is not None:
                now = self._clock.elapsed()
                share = (began_at + self.seconds - now) / (len(held) - number)
                limited = self._objects.limited(now + share)
            try:
                with limited:
                    found = renew(each)
            except LeaseError as error:
                first_failure = first_failure or error
                continue
            if found is not None:
                done.append(found)
        return done, first_failure

    def _renew_unless_answered(
        self, seen: ResourceObject, began_at: float
    ) -> ResourceObject | None:
        there = self._context.resource(seen.name)
        claim, before = None if there is None else there.claim, seen.claim
        if there is None or claim is None or before is None or not is_same(claim, before):
            self._claims.forget(seen.id.name)
            return None
        if claim.renewed == before.renewed or claim.ended or self._claims.is_over(there):
            return self._renew(there, None, [])
        self._claims.note(there, began_at)
        return there

    def _renew(
        self, seen: ResourceObject, ttl: float | None, put_off: list[ResourceObject]
    ) -> ResourceObject | None:
        """Give a claim its full time again; returns it as it is then, None where it has gone.

        One with another note than when it was written here may be put off instead.
        """
        first = seen.claim
        for _ in range(MOST_TRIES):
            claim, sent_at = seen.claim, self._clock.elapsed()
            if first is None or claim is None or not is_same(claim, first) or claim.ended:
                break
            if self._claims.is_over(seen):
                there = None if self._claims.expire(seen) else self._claims.as_it_is(seen)
                if there is None:
                    break
                seen = there
                continue
            if claim.life and ttl is None and not self._objects.keep_alive(seen):
                there = self._claims.as_it_is(seen)
                if there is None or there.claim is None or there.claim.life == claim.life:
                    break  # it has ended; others may have it when its time is over
                seen = there
                continue
            new = self._claims.renewal_of(claim)
            if ttl is not None and claim.ttl_seconds is not None:
                new = new._replace(ttl_seconds=ttl, life=self._objects.new_life())
            written = self._objects.write(Change(seen, seen._replace(claim=new)))
            done = written.resource
            if done is not None:
                self._claims.note(done, sent_at)
                return done
            there = as_resource(written.found)
            if there is None:
                break
            if self.put_off is not None and ttl is None and _has_news(there, claim):
                put_off.append(there)
                return there
            seen = there
        else:
            raise too_fast(f'resource "{seen.name}"')
        self._claims.forget(seen.id.name)
        return None


def _has_news(there: ResourceObject, claim: Claim) -> bool:
    """Tell whether a good claim is the same as before, but for a note that it hadn't."""
    now = there.claim
    is_good = now is not None and is_same(now, claim) and not now.ended
    return is_good and now is not None and now.note not in (None, claim.note)
