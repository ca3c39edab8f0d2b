"""Wake a holder when others change what it holds.

Only a hint, as every watch is: whoever is woken renews, and so finds out what is left. If it says
nothing, because the server hangs that it listens to, the next renewal finds out all the same.
"""

from __future__ import annotations

import threading

from leasectl.engines.kubernetes.api.watching import WatchEvent
from leasectl.engines.kubernetes.following import Following
from leasectl.engines.kubernetes.objects.objects import Json
from leasectl.engines.kubernetes.objects.reading import identity_of
from leasectl.engines.kubernetes.objects.recognition import resource_in
from leasectl.engines.kubernetes.objects.store import Store


class KubernetesClaimWatch:
    """As `ClaimWatch`; its thread ends soon after it is closed.

    Args:
        store: Where the claims are.
        claim_key: Of the claims.
    """

    def __init__(self, store: Store, claim_key: str) -> None:
        self._store = store
        self._claim_key = claim_key
        self._lock = threading.Lock()
        self._reason = ""  # under the lock
        # Of the thread:
        self._held: set[str] | None = None  # the objects that were seen to be held
        self._notes: dict[str, str | None] = {}  # what was noted when it looked last
        # Where it can't look, renewals ask as well, and say so.
        self._following = Following(self._follow)
        self._following.start("claim-watch")

    @property
    def fd(self) -> int:
        return self._following.fd

    def take(self) -> str:
        self._following.clear()
        with self._lock:
            reason, self._reason = self._reason, ""
        return reason

    def close(self) -> None:
        self._following.close()

    # The thread

    def _follow(self) -> None:
        seen = self._store.of_claim(self._claim_key, "resource")
        before, self._held = self._held, {identity_of(raw).name for raw in seen.items}
        for raw in seen.items:
            self._see(raw)
        if not self._held or (before is not None and not before <= self._held):
            self._following.wake()
        watch = self._store.watch_claim(self._claim_key, seen.version)
        self._following.take_all(watch, self._take)

    def _take(self, event: WatchEvent) -> None:
        if event.type == "DELETED":  # or it isn't found by that claim key any more
            self._following.wake()
        elif event.type != "BOOKMARK":
            self._see(event.object)

    def _see(self, raw: Json) -> None:
        claim = None if (found := resource_in(raw)) is None else found.claim
        if claim is None:
            return
        name = identity_of(raw).name
        if claim.ended:
            with self._lock:
                self._reason = claim.ended
        if claim.ended or claim.note != self._notes.get(name):
            self._following.wake()
        self._notes[name] = claim.note
