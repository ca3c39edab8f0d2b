"""A holder's watch: it is woken as soon as anybody else has changed what it holds.

Only a hint, as every watch is: whoever is woken renews, and so finds out what is left. If it says
nothing, because the server hangs that it listens to, the next renewal finds out all the same.
"""

from __future__ import annotations

import threading

from leasectl.engines.kubernetes.api.watching import Watch, WatchEnded, WatchEvent
from leasectl.engines.kubernetes.objects import Json
from leasectl.engines.kubernetes.reading import identity_of
from leasectl.engines.kubernetes.recognition import resource_in
from leasectl.engines.kubernetes.store import Store
from leasectl.errors import LeaseError
from leasectl.system.wakeup import Wakeup

_LEAST_SECONDS = 0.2
_ASK_AGAIN_SECONDS = 5.0


class KubernetesClaimWatch:
    """As `ClaimWatch`; its thread ends soon after it is closed.

    Args:
        store: Where the claims are.
        claim_key: Of the claims.
    """

    def __init__(self, store: Store, claim_key: str) -> None:
        self._store = store
        self._claim_key = claim_key
        self._wakeup = Wakeup()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        # Under the lock:
        self._watch: Watch | None = None
        self._held: set[str] | None = None  # the objects that were seen to be held
        self._reason = ""
        self._notes: dict[str, str | None] = {}  # of the thread: what was noted when it looked last
        threading.Thread(target=self._run, name="leasectl_claim_watch", daemon=True).start()

    @property
    def fd(self) -> int:
        return self._wakeup.fd

    def take(self) -> str:
        self._wakeup.clear()
        with self._lock:
            reason, self._reason = self._reason, ""
        return reason

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            watch = self._watch
        if watch is not None:
            watch.cut()
        self._wakeup.close()

    # The thread

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._follow()
            except WatchEnded as ended:
                self._closed.wait(ended.retry_after_seconds or _LEAST_SECONDS)
            except LeaseError:  # renewals ask as well, and say so
                self._closed.wait(_ASK_AGAIN_SECONDS)

    def _follow(self) -> None:
        seen = self._store.of_claim(self._claim_key, "resource")
        before, self._held = self._held, {identity_of(raw).name for raw in seen.items}
        for raw in seen.items:
            self._see(raw)
        if not self._held or (before is not None and not before <= self._held):
            self._wakeup.set()
        watch = self._store.watch_claim(self._claim_key, seen.version)
        with self._lock:
            self._watch = watch
        if self._closed.is_set():
            return
        with watch as events:
            for event in events:
                self._take(event)

    def _take(self, event: WatchEvent) -> None:
        if event.type == "DELETED":  # or it isn't found by that claim key any more
            self._wakeup.set()
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
            self._wakeup.set()
        self._notes[name] = claim.note
