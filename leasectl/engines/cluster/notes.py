"""Notes at claims, and the watches that tell of them.

A note names the fence that it is for, and counts for that claim only; ending the claim removes it.
A change is guarded by the version that was seen, with the claim and the note that it expects.

`ClusterClaimWatch` wakes a holder when others change what it holds. Like every watch it is only a
hint: the holder renews, and so finds out what is left. If the watch hears nothing because its
server hangs, the next renewal finds out all the same. The watch also tells the notes, since a
renewal for each note, and for each answer to one, would write every Lease of the holder each time.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from leasectl.engines.cluster.changes import noted
from leasectl.engines.cluster.claims import notes_in
from leasectl.engines.cluster.context import Context
from leasectl.engines.cluster.objects import (
    MOST_TRIES,
    Change,
    Claim,
    Found,
    Happened,
    Objects,
    ResourceObject,
    Selection,
    as_resource,
    too_fast,
)
from leasectl.engines.cluster.watches import Follower, Following
from leasectl.engines.notes import ClaimNews, Note, NoteChange
from leasectl.errors import LeaseError
from leasectl.model import ReleasedBy


class ClusterNotes:
    """The notes at the claims in one place, as `Notes`.

    Args:
        context: Of that place.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._claims = context.claims
        self._events = context.events

    def of_pool(self, pool_type: str) -> tuple[Note, ...]:
        view = self._context.pool(pool_type)
        if not view.is_shown:
            raise self._context.no_pool(pool_type)
        held = [each for each in view.resources.values() if not self._claims.is_over(each)]
        return notes_in(sorted(held, key=lambda each: each.name))

    def of_claims(self, claim_key: str) -> tuple[Note, ...]:
        held = self._context.claimed(claim_key)
        return notes_in(each for each in held if not self._claims.is_over(each))

    def change(self, changes: Sequence[NoteChange]) -> tuple[bool, ...]:
        return tuple(map(self._change, changes))

    def free(self, notes: Sequence[Note], *, by: ReleasedBy) -> tuple[str, ...]:
        found = [self._claimed(each.name, each.fence, each.text) for each in notes]
        held = [each for each in found if each is not None]
        return tuple(each.name for each in self._claims.release_as_seen(held, by))

    def watch(self, pool_type: str) -> ChangeWatch:
        return ChangeWatch(self._context, pool_type)

    def _change(self, change: NoteChange) -> bool:
        for _ in range(MOST_TRIES):
            resource = self._claimed(change.name, change.fence, change.before)
            if resource is None:
                return False
            new = noted(resource, change.after, renewal=self._renewal(resource, change))
            told = self._events.noted(resource, change.told)
            if self._context.objects.write(Change(resource, new, told)).is_done:
                return True
        raise too_fast(f'resource "{change.name}"')

    def _renewal(self, resource: ResourceObject, change: NoteChange) -> Claim | None:
        """The claim with its full time again, if that is written with the note."""
        claim = resource.claim
        if not change.renews or claim is None or claim.ttl_seconds is None:
            return None
        if claim.life and not self._context.objects.keep_alive(resource):
            return None
        return self._claims.renewal_of(claim)

    def _claimed(self, name: str, fence: int, text: str | None) -> ResourceObject | None:
        """Return the resource of a good claim with this note; else None."""
        resource = self._context.resource(name)
        claim = None if resource is None else resource.claim
        if resource is None or claim is None or not self._claims.is_good(resource):
            return None
        return resource if (claim.fence, claim.note) == (fence, text) else None


class ChangeWatch(Follower):
    """Implements `NoteWatch`; its thread ends soon after it is closed.

    Args:
        context: Of the place of the pool.
        pool_type: Its type.

    Raises:
        LeaseError: It can't be asked how it is now.
    """

    def __init__(self, context: Context, pool_type: str) -> None:
        super().__init__()
        self._context = context
        self._pool_type = pool_type
        self._said: dict[str, object] = {}  # of the thread: what matters of each object
        self._version = self._look()
        self._following = Following(self._follow, self._begin_anew)
        self._following.start("change-watch")

    def clear(self) -> int:
        self._wakeup.clear()
        return 0

    # The thread

    def _begin_anew(self) -> None:
        try:
            self._version = self._look()
        except LeaseError:
            return
        self._wakeup.set()  # something may have happened that no watch tells of

    def _look(self) -> int:
        view = self._context.pool(self._pool_type)
        self._said = {name: _news_of(each) for name, each in view.resources.items()}
        return view.version

    def _follow(self) -> None:
        watch = self._context.objects.watch(Selection(pool=self._pool_type), self._version)
        self._following.take_all(watch, self._take)

    def _take(self, happened: Happened) -> None:
        name = happened.id.name
        self._version = max(self._version, happened.id.version)
        said = _news_of(as_resource(happened.object))
        if happened.what in ("there", "gone") and said != self._said.get(name):
            self._said[name] = said
            self._wakeup.set()


def _news_of(found: ResourceObject | None) -> object:
    """Return what a change watch tells of in a resource: its claim's fence, note and end."""
    claim = None if found is None else found.claim
    return claim and (claim.fence, claim.note, claim.ended)


class ClusterClaimWatch(Follower):
    """Implements `ClaimWatch`; its thread ends soon after it is closed.

    Args:
        objects: The place where the claims are.
        claim_key: Of the claims, with its state id.
    """

    def __init__(self, objects: Objects, claim_key: str) -> None:
        super().__init__()
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

    def take(self) -> ClaimNews:
        self._wakeup.clear()
        with self._lock:
            reason, self._reason = self._reason, ""
            has_changed, self._has_changed = self._has_changed, False
            notes = None if has_changed else notes_in(self._seen.values())
        return ClaimNews(reason, notes)

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
            self._wakeup.set()

    def _change(self, *, gone: str = "") -> None:
        """Make the holder look what is left."""
        with self._lock:
            self._has_changed = True
            self._seen.pop(gone, None)
        self._wakeup.set()
