"""What changes at nodes and at their leases, by watches that threads follow.

Nodes are written every few minutes by their kubelets, and leases by whoever renews them: only what
would be judged otherwise counts as a change.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Hashable
from typing import Callable

from leasectl.engines.kubernetes.api.collection import Collection
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.api.watching import Watch, WatchEnded
from leasectl.errors import LeaseError
from leasectl.http.no_answer import NoAnswer
from leasectl.maintenance.api_cluster import NODES, ApiCluster
from leasectl.maintenance.controller import Settings
from leasectl.maintenance.facts import Node
from leasectl.maintenance.leadership import LEASE_NAME
from leasectl.maintenance.objects import Json, name_of, parse_lease, parse_node, request_of
from leasectl.system.backoff import Backoff, Pauses
from leasectl.system.wakeup import Wakeup

_BACKOFF = Backoff(first_seconds=0.2, longest_seconds=5.0, chance=0.5)


class WatchedChanges:
    """As `Changes` has it, of a cluster.

    Args:
        cluster: Of which.
        settings: What leases are called, and who we are.
        say: Called with a line for people, by any thread.

    Attributes:
        fd: Readable when something has changed.
    """

    def __init__(self, cluster: ApiCluster, settings: Settings, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._wakeup = Wakeup()
        self.fd = self._wakeup.fd
        self._lock = threading.Lock()
        # Under the lock:
        self._names: set[str] = set()
        self._followers = (
            _Follower(cluster.api, NODES, _judged_node, self._add, say),
            _Follower(
                cluster.api, cluster.lease_collection, self._judged_lease, self._add_lease, say
            ),
        )

    def begin(self) -> None:
        """See what is there, and follow what happens from then on.

        Raises:
            LeaseError: It can't be asked.
        """
        for follower in self._followers:
            follower.begin()

    def take(self) -> set[str]:
        """As `Changes`."""
        self._wakeup.clear()
        with self._lock:
            names, self._names = self._names, set()
        return names

    def close(self) -> None:
        """End the watches."""
        for follower in self._followers:
            follower.close()

    def _add(self, name: str) -> None:
        with self._lock:
            self._names.add(name)
        self._wakeup.set()

    def _add_lease(self, name: str) -> None:
        node = name if name == LEASE_NAME else self._settings.node_of(name)
        if node:
            self._add(node)

    def _judged_lease(self, said: Json) -> Hashable:
        """What counts of a lease; None where it is nothing to us if no node asks for anything."""
        lease = parse_lease(said)
        if name_of(said) == LEASE_NAME:
            return lease.holder, bool(lease.duration_seconds)
        if lease.holder == self._settings.us.identity and not lease.duration_seconds:
            return None
        return lease


def _judged_node(said: Json) -> Hashable:
    """What counts of a node; None where there is nothing to do."""
    node, request = parse_node(said), request_of(said)
    idle = node._replace(uid="", is_unschedulable=False)
    if request is None and idle in (Node(""), Node("", "ended")):
        return None
    return node, request


class _Follower:
    """The list and the watches of one collection, one after the other."""

    def __init__(
        self,
        api: Api,
        collection: Collection,
        judged: Callable[[Json], Hashable],
        changed: Callable[[str], None],
        say: Callable[[str], None],
    ) -> None:
        self._api = api
        self._collection = collection
        self._judged = judged
        self._changed = changed
        self._say = say
        self._known: dict[str, Hashable] = {}
        self._version = ""
        self._lock = threading.Lock()
        # Under the lock:
        self._watch: Watch | None = None
        self._is_closed = False

    def begin(self) -> None:
        self._list()
        threading.Thread(target=self._run, name="leasectl_watch", daemon=True).start()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            watch = self._watch
        if watch is not None:
            watch.cut()

    def _run(self) -> None:
        # Signals are the main thread's.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        pauses, has_said = Pauses(_BACKOFF), False
        while not self._is_closed:
            try:
                if not self._version:
                    self._list()
                pauses, has_said = Pauses(_BACKOFF), False
                self._follow()
            except (WatchEnded, NoAnswer):
                self._version = ""
            except LeaseError as error:
                self._version = ""
                if not has_said:
                    has_said = True
                    self._say(f"{error}; trying again")
            threading.Event().wait(pauses.next())

    def _list(self) -> None:
        listed = self._api.list(self._collection)
        gone = self._known.keys() - {name_of(each) for each in listed.items}
        for name in gone:
            self._note(name, None)
        for each in listed.items:
            self._note(name_of(each), self._judged(each))
        self._version = listed.resource_version

    def _follow(self) -> None:
        watch = self._api.watch(self._collection, resource_version=self._version)
        with self._lock:
            if self._is_closed:
                return
            self._watch = watch
        with watch as events:
            for event in events:
                self._version = event.resource_version
                if event.type == "BOOKMARK":
                    continue
                judged = None if event.type == "DELETED" else self._judged(event.object)
                self._note(name_of(event.object), judged)

    def _note(self, name: str, judged: Hashable) -> None:
        """Remember what counts of an object now, and say if that is something else than before."""
        before = self._known.get(name)
        if judged is None:
            self._known.pop(name, None)
        else:
            self._known[name] = judged
        if judged != before:
            self._changed(name)
