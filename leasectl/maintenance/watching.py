"""Watch nodes and their Leases.

Kubelets write their nodes every few minutes, and holders renew their Leases. Only a change on which
a decision depends counts.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from leasectl.engines.kubernetes.api.address import Collection
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.api.watching import Watch
from leasectl.errors import BackendUnreachable, LeaseError
from leasectl.http.no_answer import WatchEnded
from leasectl.maintenance.api_cluster import NODES, ApiCluster
from leasectl.maintenance.controller import Controller, Settings
from leasectl.maintenance.facts import Node
from leasectl.maintenance.leadership import LEASE_NAME, Leadership
from leasectl.maintenance.objects import Json, name_of, parse_lease, parse_node, request_of, word_of
from leasectl.system.backoff import Backoff, Pauses
from leasectl.system.clock import Clock
from leasectl.system.poll import Interrupt, sleep_through
from leasectl.system.threads import start_thread
from leasectl.system.wakeup import Wakeup
from leasectl.text.naming import escape_word
from leasectl.text.wording import followed_by

_BACKOFF = Backoff(first_seconds=0.2, longest_seconds=5.0, chance=0.5)


def run_controller(
    cluster: ApiCluster,
    changes: WatchedChanges,
    settings: Settings,
    *,
    say: Callable[[str], None],
    warn: Callable[[str], None],
    interrupts: Sequence[Interrupt],
) -> None:
    """Run a controller until something interrupts it; then another may lead at once.

    Args:
        cluster: Of the nodes.
        changes: Of them, which are watched already; closed at the end.
        settings: The same for all replicas.
        say: Called with a line for people, of what is done.
        warn: The same, of what goes wrong.
        interrupts: What ends it.
    """
    clock = Clock()
    replica = f"{escape_word(os.uname().nodename)}_{os.getpid()}_{secrets.token_hex(4)}"
    leadership = Leadership(cluster, replica, clock)
    controller = Controller(cluster, changes, settings, leadership, clock=clock, say=say, warn=warn)
    try:
        sleep_through(controller.run(), interrupts=interrupts, now=clock.elapsed)
    finally:
        changes.close()
        with contextlib.suppress(BackendUnreachable):
            leadership.resign()


class WatchedChanges:
    """`Changes` of a cluster.

    Args:
        cluster: The cluster.
        settings: What leases are called, and our identity.
        say: Called with a line for people, by any thread.
        wait: Called with an event that is set once this is closed, and the seconds to wait for it
            before the next request; returns whether it is set.

    Attributes:
        fd: Readable when something has changed.
    """

    def __init__(
        self,
        cluster: ApiCluster,
        settings: Settings,
        say: Callable[[str], None],
        *,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        self._settings = settings
        self._wakeup = Wakeup()
        self.fd = self._wakeup.fd
        self._lock = threading.Lock()
        # Under the lock:
        self._names: set[str] = set()
        self._failure: Exception | None = None
        nodes = _Follower(cluster.api, NODES, _judged_node, self._add, say, wait)
        leases = _Follower(
            cluster.api, cluster.lease_collection, self._judged_lease, self._add_lease, say, wait
        )
        self._followers = (nodes, leases)

    def begin(self) -> None:
        """See what is there, and follow what happens from then on.

        Raises:
            LeaseError: It can't be asked.
        """
        for follower in self._followers:
            follower.begin(self._fail)

    def take(self) -> set[str]:
        """Implements `Changes`; raises an unexpected error that has ended a watch."""
        self._wakeup.clear()
        with self._lock:
            names, self._names = self._names, set()
            failure = self._failure
        if failure is not None:
            raise failure
        return names

    def close(self) -> None:
        """End the watches."""
        for follower in self._followers:
            follower.close()

    def _add(self, name: str) -> None:
        with self._lock:
            self._names.add(name)
        self._wakeup.set()

    def _fail(self, failure: Exception) -> None:
        with self._lock:
            self._failure = failure
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
    """Return what the lifecycle judges a node by; None if there is nothing to do for it."""
    node, request = parse_node(said), request_of(said)
    idle = node._replace(uid="", is_unschedulable=False)
    if request is None and idle in (Node(""), Node("", "ended")):
        return None
    return node, request, word_of(said)


class _Follower:
    """The list and the watches of one collection, one after the other."""

    def __init__(
        self,
        api: Api,
        collection: Collection,
        judged: Callable[[Json], Hashable],
        changed: Callable[[str], None],
        say: Callable[[str], None],
        wait: Callable[[threading.Event, float], bool],
    ) -> None:
        self._api = api
        self._collection = collection
        self._judged = judged
        self._changed = changed
        self._say = say
        self._wait = wait
        self._known: dict[str, Hashable] = {}
        self._pauses = Pauses(_BACKOFF)
        self._has_said = False
        self._closed = threading.Event()
        self._watch: Watch | None = None

    def begin(self, fail: Callable[[Exception], None]) -> None:
        version = self._list()
        start_thread("node-watch", partial(self._run, version, fail))

    def close(self) -> None:
        self._closed.set()
        watch = self._watch
        if watch is not None:
            watch.cut()

    def _run(self, version: str, fail: Callable[[Exception], None]) -> None:
        try:
            self._go_on(version)
        except Exception as error:
            # Who leads would go on otherwise, and hear of nothing more.
            fail(error)

    def _go_on(self, version: str) -> None:
        while True:
            seconds = 0.0
            try:
                self._follow(version or self._list())
            except WatchEnded as ended:
                seconds = ended.retry_after_seconds or 0.0
            except LeaseError as error:
                if not self._has_said:
                    self._has_said = True
                    self._say(followed_by(error, "trying again"))
            version = ""
            if self._wait(self._closed, max(seconds, self._pauses.next())):
                return

    def _list(self) -> str:
        """Note all that is there, and what isn't any more; returns since when to watch."""
        listed = self._api.list(self._collection)
        gone = self._known.keys() - {name_of(each) for each in listed.items}
        for name in gone:
            self._note(name, None)
        for each in listed.items:
            self._note(name_of(each), self._judged(each))
        return listed.resource_version

    def _follow(self, version: str) -> None:
        """Note what happens; returns only where it is closed.

        Raises:
            WatchEnded: Nothing more is said.
        """
        # Known before it is asked whether it is closed: who closes it is seen here, or cuts it.
        self._watch = watch = self._api.watch(self._collection, resource_version=version)
        if self._closed.is_set():
            return
        with watch as events:
            for event in events:
                # Not before: where only a list is allowed, each try gets as far as that.
                self._pauses.begin_anew()
                self._has_said = False
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
