"""Wake a holder when others change what it holds.

Only a hint, as every watch is: a holder that is woken renews, and so finds out what is left. If the
watch is silent because its server hangs, the next renewal finds out all the same.

Notes come with it. A renewal for each note, and for each answer, which is a note as well,
would write every Lease of the holder each time.
"""

from __future__ import annotations

import threading

from leasectl.engines.cluster.claims import notes_in
from leasectl.engines.cluster.following import Following
from leasectl.engines.cluster.objects import (
    Found,
    Happened,
    Objects,
    ResourceObject,
    Selection,
    as_resource,
)
from leasectl.engines.notes import ClaimNews


class ClusterClaimWatch:
    """Implements `ClaimWatch`; its thread ends soon after it is closed.

    Args:
        objects: The place where the claims are.
        claim_key: Of the claims, with its state id.
    """

    def __init__(self, objects: Objects, claim_key: str) -> None:
        self._objects = objects
        self._which = Selection(kinds=("resource",), claim=claim_key)
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
        seen = self._objects.list(self._which)
        before, self._held = self._held, {each.id.name for each in seen.items}
        for each in seen.items:
            self._see(each)
        if not self._held or (before is not None and not before <= self._held):
            self._change()
        self._following.take_all(self._objects.watch(self._which, seen.version), self._take)

    def _take(self, happened: Happened) -> None:
        if happened.what == "over":
            self._change()
        elif happened.what == "gone":  # or it isn't found by that claim key any more
            self._change(gone=happened.id.name)
        elif happened.what == "there":
            self._see(happened.object)

    def _see(self, seen: Found | None) -> None:
        found = as_resource(seen)
        if found is None or found.claim is None:
            return
        claim, name = found.claim, found.id.name
        with self._lock:
            before, self._seen[name] = self._seen.get(name), found
            self._reason = claim.ended or self._reason
        if claim.ended:
            self._change()
        elif claim.note != (before.claim.note if before and before.claim else None):
            self._following.wake()

    def _change(self, *, gone: str = "") -> None:
        """Make the holder look what is left."""
        with self._lock:
            self._has_changed = True
            self._seen.pop(gone, None)
        self._following.wake()
