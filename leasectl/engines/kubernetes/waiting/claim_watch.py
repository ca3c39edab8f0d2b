"""Wake a holder when others change what it holds.

Only a hint, as every watch is: whoever is woken renews, and so finds out what is left. If it says
nothing, because the server hangs that it listens to, the next renewal finds out all the same.

Of notes it tells by itself. A renewal for each note, and for each answer, which is a note as well,
would write every Lease of the holder each time.
"""

from __future__ import annotations

import threading

from leasectl.engines.kubernetes.api.watching import WatchEvent
from leasectl.engines.kubernetes.claims.notes_at import notes_in
from leasectl.engines.kubernetes.following import Following
from leasectl.engines.kubernetes.objects.objects import Json, ResourceObject
from leasectl.engines.kubernetes.objects.reading import identity_of
from leasectl.engines.kubernetes.objects.recognition import resource_in
from leasectl.engines.kubernetes.objects.store import Store
from leasectl.engines.notes import ClaimNews


class KubernetesClaimWatch:
    """Implements `ClaimWatch`; its thread ends soon after it is closed.

    Args:
        store: Where the claims are.
        claim_key: Of the claims.
    """

    def __init__(self, store: Store, claim_key: str) -> None:
        self._store = store
        self._claim_key = claim_key
        self._lock = threading.Lock()
        # Under the lock:
        self._reason = ""
        self._has_changed = False  # something beside notes, since the last `take`
        self._seen: dict[str, ResourceObject] = {}  # what is held, by object
        # Of the thread:
        self._held: set[str] | None = None  # the objects that were seen to be held
        # Where it can't look, renewals ask as well, and say so.
        self._following = Following(self._follow)
        self._following.start("claim-watch")

    @property
    def fd(self) -> int:
        return self._following.fd

    def take(self) -> ClaimNews:
        self._following.clear()
        with self._lock:
            reason, self._reason = self._reason, ""
            has_changed, self._has_changed = self._has_changed, False
            notes = None if has_changed else notes_in(self._seen.values())
        return ClaimNews(reason, notes)

    def close(self) -> None:
        self._following.close()

    # The thread

    def _follow(self) -> None:
        seen = self._store.of_claim(self._claim_key, "resource")
        before, self._held = self._held, {identity_of(raw).name for raw in seen.items}
        for raw in seen.items:
            self._see(raw)
        if not self._held or (before is not None and not before <= self._held):
            self._change()
        watch = self._store.watch_claim(self._claim_key, seen.version)
        self._following.take_all(watch, self._take)

    def _take(self, event: WatchEvent) -> None:
        if event.type == "DELETED":  # or it isn't found by that claim key any more
            self._change(gone=identity_of(event.object).name)
        elif event.type != "BOOKMARK":
            self._see(event.object)

    def _see(self, raw: Json) -> None:
        found = resource_in(raw)
        if found is None or found.claim is None:
            return
        claim, name = found.claim, identity_of(raw).name
        with self._lock:
            before, self._seen[name] = self._seen.get(name), found
            self._reason = claim.ended or self._reason
        if claim.ended:
            self._change()
        elif claim.note != (before.claim.note if before and before.claim else None):
            self._following.wake()

    def _change(self, *, gone: str = "") -> None:
        """Have the holder look what is left."""
        with self._lock:
            self._has_changed = True
            self._seen.pop(gone, None)
        self._following.wake()
