"""Wake a follower when notes in a pool change.

Only a hint, as every watch is: whoever is woken reads. Renewals wake nobody.
"""

from __future__ import annotations

from leasectl.engines.kubernetes.api.watching import WatchEvent
from leasectl.engines.kubernetes.following import Following
from leasectl.engines.kubernetes.objects.reading import identity_of
from leasectl.engines.kubernetes.objects.recognition import resource_in
from leasectl.engines.kubernetes.objects.store import Store
from leasectl.errors import LeaseError


class ChangeWatch:
    """Implements `NoteWatch`; its thread ends soon after it is closed.

    Args:
        store: Where the pool is.
        pool_type: Its type.

    Raises:
        LeaseError: It can't be asked how it is now.
    """

    def __init__(self, store: Store, pool_type: str) -> None:
        self._store = store
        self._pool_type = pool_type
        self._said: dict[str, object] = {}  # of the thread: what matters of each object
        self._version = self._look()
        self._following = Following(self._follow, self._begin_anew)
        self._following.start("change-watch")

    @property
    def fd(self) -> int:
        return self._following.fd

    def clear(self) -> int:
        self._following.clear()
        return 0

    def close(self) -> None:
        self._following.close()

    # The thread

    def _begin_anew(self) -> None:
        try:
            self._version = self._look()
        except LeaseError:
            return
        self._following.wake()  # something may have happened that no watch tells of

    def _look(self) -> int:
        view = self._store.pool(self._pool_type)
        self._said = {
            each.id.name: each.claim and (each.claim.fence, each.claim.note, each.claim.ended)
            for each in view.resources.values()
        }
        return view.version

    def _follow(self) -> None:
        watch = self._store.watch_pool(self._pool_type, self._version)
        self._following.take_all(watch, self._take)

    def _take(self, event: WatchEvent) -> None:
        id_ = identity_of(event.object)
        self._version = max(self._version, id_.version)
        found = None if event.type == "DELETED" else resource_in(event.object)
        claim = None if found is None else found.claim
        said = claim and (claim.fence, claim.note, claim.ended)
        if event.type != "BOOKMARK" and said != self._said.get(id_.name):
            self._said[id_.name] = said
            self._following.wake()
