"""Who follows what is noted in a pool is woken when something else may be.

Only a hint, as every watch is: whoever is woken reads. Renewals wake nobody.
"""

from __future__ import annotations

import threading

from leasectl.engines.kubernetes.api.watching import Watch, WatchEnded, WatchEvent
from leasectl.engines.kubernetes.reading import identity_of
from leasectl.engines.kubernetes.recognition import resource_in
from leasectl.engines.kubernetes.store import Store
from leasectl.errors import LeaseError
from leasectl.system.wakeup import Wakeup

_LEAST_SECONDS = 0.2
_ASK_AGAIN_SECONDS = 5.0


class ChangeWatch:
    """As `NoteWatch`; its thread ends soon after it is closed.

    Args:
        store: Where the pool is.
        pool_type: Its type.

    Raises:
        LeaseError: It can't be asked how it is now.
    """

    def __init__(self, store: Store, pool_type: str) -> None:
        self._store = store
        self._pool_type = pool_type
        self._wakeup = Wakeup()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._watch: Watch | None = None  # under the lock
        self._said: dict[str, object] = {}  # of the thread: what matters of each object
        self._version = self._look()
        threading.Thread(target=self._run, name="leasectl_change_watch", daemon=True).start()

    @property
    def fd(self) -> int:
        return self._wakeup.fd

    def clear(self) -> int:
        self._wakeup.clear()
        return 0

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
                self._begin_anew()
            except LeaseError:
                self._closed.wait(_ASK_AGAIN_SECONDS)
                self._begin_anew()

    def _begin_anew(self) -> None:
        if not self._closed.is_set():
            try:
                self._version = self._look()
            except LeaseError:
                return
            self._wakeup.set()  # something may have happened that no watch tells of

    def _look(self) -> int:
        view = self._store.pool(self._pool_type)
        self._said = {
            each.id.name: each.claim and (each.claim.fence, each.claim.note, each.claim.ended)
            for each in view.resources.values()
        }
        return view.version

    def _follow(self) -> None:
        watch = self._store.watch_pool(self._pool_type, self._version)
        with self._lock:
            self._watch = watch
        if self._closed.is_set():
            return
        with watch as events:
            for event in events:
                self._take(event)

    def _take(self, event: WatchEvent) -> None:
        id_ = identity_of(event.object)
        self._version = max(self._version, id_.version)
        found = None if event.type == "DELETED" else resource_in(event.object)
        claim = None if found is None else found.claim
        said = claim and (claim.fence, claim.note, claim.ended)
        if event.type != "BOOKMARK" and said != self._said.get(id_.name):
            self._said[id_.name] = said
            self._wakeup.set()
