"""Who follows the events of a namespace is woken by each, and needn't list them again.

A watch that ends goes on where it was; if it can't, as that is too long ago, all are listed, and
what is newer than what had come by then has come now.
"""

from __future__ import annotations

import threading

from leasectl.engines.kubernetes.api.collection import Collection
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.api.watching import Watch, WatchEnded, WatchEvent, WatchExpired
from leasectl.engines.kubernetes.events.post_objects import EVENT, NUMBERS_PER_VERSION, parse_post
from leasectl.engines.kubernetes.objects import KIND
from leasectl.engines.kubernetes.reading import identity_of
from leasectl.errors import LeaseError
from leasectl.state.event import Event
from leasectl.system.wakeup import Wakeup

_LEAST_SECONDS = 0.2
_ASK_AGAIN_SECONDS = 5.0
_OURS = f"{KIND}={EVENT}"


class KubernetesEventWatch:
    """As `EventWatch`; its thread ends soon after it is closed.

    Args:
        api: Of the cluster.
        collection: Its events.

    Raises:
        LeaseError: They can't be read.
    """

    def __init__(self, api: Api, collection: Collection) -> None:
        self._api = api
        self._collection = collection
        self._wakeup = Wakeup()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        # Under the lock:
        self._watch: Watch | None = None
        self._come: list[Event] = []
        self._version = self._base = self._list_after(None)
        threading.Thread(target=self._run, name="leasectl_event_watch", daemon=True).start()

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

    def come_after(self, number: int) -> list[Event] | None:
        """What has come with larger numbers; None where some of that was there before it began.

        What has smaller ones was read, and isn't asked for again.
        """
        version = number // NUMBERS_PER_VERSION
        with self._lock:
            if self._closed.is_set() or version < self._base:
                return None
            self._come = [each for each in self._come if each.number > number]
            self._base = version
            return list(self._come)

    def reached(self) -> int:
        """No event that is still to come has a number as small as that."""
        with self._lock:
            return self._version * NUMBERS_PER_VERSION + NUMBERS_PER_VERSION - 1

    # The thread

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._follow()
            except WatchExpired:
                self._list_anew()
            except WatchEnded as ended:
                self._closed.wait(ended.retry_after_seconds or _LEAST_SECONDS)
            except LeaseError:
                self._closed.wait(_ASK_AGAIN_SECONDS)

    def _follow(self) -> None:
        version = str(self._version)
        watch = self._api.watch(self._collection, resource_version=version, labels=_OURS)
        with self._lock:
            self._watch = watch
        if self._closed.is_set():
            return
        with watch as events:
            for event in events:
                self._take(event)

    def _take(self, event: WatchEvent) -> None:
        version = identity_of(event.object).version
        come = parse_post(event.object) if event.type == "ADDED" else []
        with self._lock:
            self._come += [each for each in come if each.number // NUMBERS_PER_VERSION == version]
            self._version = max(self._version, version)
        if come:
            self._wakeup.set()

    def _list_anew(self) -> None:
        try:
            self._version = self._list_after(self._version)
        except LeaseError:
            self._closed.wait(_ASK_AGAIN_SECONDS)
            return
        self._wakeup.set()

    def _list_after(self, version: int | None) -> int:
        """List all, to go on from there; returns when that was.

        Args:
            version: What is newer has come since; None for nothing has.
        """
        found = self._api.list(self._collection, labels=_OURS)
        if version is not None:
            new = [each for each in found.items if identity_of(each).version > version]
            with self._lock:
                self._come += [event for each in new for event in parse_post(each)]
        now = found.resource_version
        return int(now) if now.isdecimal() else 0
