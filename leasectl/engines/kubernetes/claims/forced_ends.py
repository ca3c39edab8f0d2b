"""End claims by force, while their holders may still use them.

What has a ttl is only said to have ended, in the object itself: whoever holds it hears of that by a
watch, or by its next renewal, which changes nothing any more. The time of the last renewal stays as
it is, and so the claim is over when that is, for everybody who observes it, and at once when its
holder gives it up. What has no ttl is free at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines.contract import LostListener
from leasectl.engines.kubernetes.claims.claims import Claims
from leasectl.engines.kubernetes.objects.objects import ENDED, ResourceObject
from leasectl.engines.kubernetes.objects.reading import annotations_of
from leasectl.engines.kubernetes.objects.recognition import is_same, resource_in
from leasectl.engines.kubernetes.objects.resource_bodies import ended
from leasectl.engines.kubernetes.objects.store import Store

_MOST_TRIES = 10


class ForcedEnds:
    """Ends claims in one namespace.

    Args:
        store: Where they are.
        claims: Those claims.
        lost: Told of what was taken.
    """

    def __init__(self, store: Store, claims: Claims, *, lost: LostListener) -> None:
        self._store = store
        self._claims = claims
        self._lost = lost
        self._events = claims.events

    def end(
        self, claim_key: str, names: Sequence[str], reason: str, *, at_once: bool
    ) -> tuple[str, ...]:
        """Implements `PoolAdmin.end_early`; a guard can't be seen from here.

        What is to be free at once is said to have ended first: that tells its holder. Killed in
        between, this leaves it kept, and who asks once more frees it.
        """
        held = [each for each in self._claims.of_key(claim_key) if each.name in names]
        taken = tuple(each.name for each in held if self._end(each, reason))
        if taken:
            self._lost(claim_key, taken)
        if not at_once:
            return taken
        kept = [each for each in self._claims.of_key(claim_key) if each.name in names]
        freed = [
            each.name
            for each in kept
            if each.claim and each.claim.ended and self._free(each, reason)
        ]
        return taken + tuple(name for name in freed if name not in taken)

    def _free(self, seen: ResourceObject, reason: str) -> bool:
        at = self._events.now()
        is_done = self._claims.release(seen, by="force")
        if is_done:
            self._events.ended([seen], by="force", at=at, reason=reason)
        return is_done

    def _end(self, seen: ResourceObject, reason: str) -> bool:
        first = seen.claim
        for _ in range(_MOST_TRIES):
            claim = seen.claim
            if first is None or claim is None or not is_same(claim, first) or claim.ended:
                return False
            if claim.ttl_seconds is None:
                return self._free(seen, reason)
            if self._claims.is_over(seen):
                self._claims.end_over(seen)
                return False
            written = self._store.change(
                ended(seen, reason), lambda raw: annotations_of(raw).get(ENDED) == reason
            )
            if written.raw is not None:
                self._events.lost(seen, by="force", reason=reason)
                return True
            there = resource_in(written.found)
            if there is None:
                return False
            seen = there
        return False
