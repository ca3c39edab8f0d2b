"""Follow new events.

A watch that ends goes on where it was; if it can't, as that is too long ago, all are listed, and
what is newer than what had come by then has come now.
"""

from __future__ import annotations

import threading

from leasectl.engines.kubernetes.api.collection import Collection
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.api.watching import WatchEvent, WatchExpired
from leasectl.engines.kubernetes.events.post_objects import EVENT, NUMBERS_PER_VERSION, parse_post
from leasectl.engines.kubernetes.following import Following
from leasectl.engines.kubernetes.objects.objects import KIND
from leasectl.engines.kubernetes.objects.reading import identity_of
from leasectl.state.event import Event

_OURS = f"{KIND}={EVENT}"


class KubernetesEventWatch:
    """Implements `EventWatch`; its thread ends soon after it is closed.

    Args:
        api: Of the cluster.
        collection: Its events.

    Raises:
        LeaseError: They can't be read.
    """

    def __init__(self, api: Api, collection: Collection) -> None:
        self._api = api
        self._collection = collection
        self._lock = threading.Lock()
        # Under the lock:
        self._come: list[Event] = []
        self._version = self._base = self._list_after(None)
        self._following = Following(self._follow)
        self._following.start("event-watch")

    @property
    def fd(self) -> int:
        return self._following.fd

    def clear(self) -> int:
        self._following.clear()
        return 0

    def close(self) -> None:
        self._following.close()

    def come_after(self, number: int) -> list[Event] | None:
        """What has come with larger numbers; None where some of that was there before it began.

        What has smaller ones was read, and isn't asked for again.
        """
        version = number // NUMBERS_PER_VERSION
        with self._lock:
            if self._following.is_closed or version < self._base:
                return None
            self._come = [each for each in self._come if each.number > number]
            self._base = version
            return list(self._come)

    def reached(self) -> int:
        """No event that is still to come has a number as small as that."""
        with self._lock:
            return self._version * NUMBERS_PER_VERSION + NUMBERS_PER_VERSION - 1

    # The thread

    def _follow(self) -> None:
        version = str(self._version)
        watch = self._api.watch(self._collection, resource_version=version, labels=_OURS)
        try:
            self._following.take_all(watch, self._take)
        except WatchExpired:
            self._version = self._list_after(self._version)
            self._following.wake()

    def _take(self, event: WatchEvent) -> None:
        version = identity_of(event.object).version
        come = parse_post(event.object) if event.type == "ADDED" else []
        with self._lock:
            self._come += [each for each in come if each.number // NUMBERS_PER_VERSION == version]
            self._version = max(self._version, version)
        if come:
            self._following.wake()

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
