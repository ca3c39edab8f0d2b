"""The watches of all waiters of a process: one stream to one member, followed by one thread.

A watch on a member that hangs or has lost its quorum stays silent and says nothing of it. So it
is believed only as long as the same member answers keep-alives and keeps up with others; whoever
finds that it doesn't calls `EtcdWatch.leave`, and the watches go on at the next member, each from
where it was.

The gateway takes all that is to be watched in one request, so that a change means a new stream.
A watch that begins in the past, and be it a moment ago, etcd has wait for up to 0.1 s with all that
it tells. So one who is alone, and can look again, has watches that begin now; then it is read what
they may have missed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Set

from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import read
from leasectl.engines.etcd.waiting.events import EventsLost, encode_watches, parse_line
from leasectl.engines.etcd.waiting.listeners import Listener, Listeners
from leasectl.engines.etcd.waiting.targets import Watched, WatchTarget
from leasectl.errors import LeaseError
from leasectl.http.exchange import Client, Stream
from leasectl.http.messages import Call
from leasectl.http.no_answer import NoAnswer
from leasectl.system.backoff import Backoff, Pauses

_HEADERS_SECONDS = 2.0
_BACKOFF = Backoff(first_seconds=0.05, longest_seconds=1.0)


class EtcdWatch:
    """The stream, from its start to its close. Threads may share it.

    Args:
        gateway: The cluster.
        longest_silence_seconds: How long a member may say nothing, which is asked then to say
            something in any case; None where it is found out otherwise that it hangs.
        may_skip: Whoever listens looks again when it is woken without news.
    """

    def __init__(
        self,
        gateway: Gateway,
        *,
        longest_silence_seconds: float | None = None,
        may_skip: bool = False,
    ) -> None:
        self._gateway = gateway
        self._longest_silence_seconds = longest_silence_seconds
        self._may_skip = may_skip
        self._changed = threading.Condition()
        # Under the lock of _changed:
        self._listeners = Listeners()
        self._is_closed = False
        self._generation = 0  # one up whenever the stream has to be made anew
        self._member = gateway.current
        self._stream: Stream | None = None  # the one that is read

    @property
    def member(self) -> int:
        """The number of the member that is listened to."""
        return self._member

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="leasectl_watch", daemon=True).start()

    def close(self) -> None:
        """Have the thread end, by itself: it may be waiting for a member that hangs."""
        with self._changed:
            self._is_closed = True
            self._begin_anew()

    def listen(self, listener: Listener, target: WatchTarget) -> None:
        """As `Listeners.put`."""
        with self._changed:
            if self._listeners.put(listener, target):
                self._begin_anew()

    def remove(self, listener: Listener) -> None:
        """As `Listeners.remove`. The stream stays as it is: what it tells too much is ignored."""
        with self._changed:
            self._listeners.remove(listener)

    def leave(self, member: int) -> None:
        """Move on to the next member, unless that one has been left already."""
        with self._changed:
            if self._member == member:
                self._member = (member + 1) % len(self._gateway.endpoints)
                self._begin_anew()

    def _begin_anew(self) -> None:
        """Have the stream made anew; with the lock held."""
        self._generation += 1
        self._changed.notify_all()
        if self._stream is not None:
            self._stream.cut()

    # The thread

    def _run(self) -> None:
        pauses = Pauses(_BACKOFF)
        with self._gateway.client() as client:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closed or self._listeners.revisions)
                    if self._is_closed:
                        return
                    generation, member = self._generation, self._member
                    revisions = dict(self._listeners.revisions)
                    from_now = self._may_skip and self._listeners.is_for_one
                try:
                    self._follow(client, generation, member, revisions, from_now=from_now)
                    pauses.begin_anew()
                except EventsLost:
                    self._have_all_look(generation)
                except LeaseError:
                    with self._changed:
                        self._pause(generation, pauses.next())
                    pauses.skip_to_the_longest()
                    # Those who wait ask for themselves, and get the same answer.
                    self._have_all_look(generation)
                except NoAnswer:
                    with self._changed:
                        if self._generation == generation:
                            self._leave_soon(generation, pauses.next())

    def _pause(self, generation: int, pause: float) -> None:
        """Wait, unless the stream is to be made anew before; with the lock held."""
        self._changed.wait_for(lambda: self._generation != generation, pause)

    def _leave_soon(self, generation: int, pause: float) -> None:
        """After a failure of the stream itself; with the lock held."""
        self._pause(generation, pause)
        if self._generation == generation:
            self._member = (self._member + 1) % len(self._gateway.endpoints)
            self._generation += 1

    def _have_all_look(self, generation: int) -> None:
        with self._changed:
            if self._generation == generation:
                self._generation += 1
                self._listeners.have_all_look()

    def _follow(
        self,
        client: Client,
        generation: int,
        member: int,
        revisions: Mapping[Watched, int],
        *,
        from_now: bool,
    ) -> None:
        """Tell listeners what comes on the stream, until it has to be made anew."""
        headers = self._gateway.headers(client, member, _HEADERS_SECONDS)
        url = self._gateway.endpoints[member] + "/v3/watch"
        silence = self._longest_silence_seconds
        body = encode_watches(
            revisions, from_now=from_now, has_progress=silence is not None
        ).encode()
        stream = client.stream(Call(url, body, headers, longest_silence_seconds=silence))
        with self._changed:
            if self._generation != generation:
                return
            self._stream = stream
        to_begin = list(revisions)
        begun: dict[int, Watched] = {}  # by the numbers that etcd gave them
        late: dict[Watched, int] = {}  # those that have begun later than they had to
        try:
            with stream as lines:
                for line in lines:
                    told = parse_line(line)
                    if told.is_begun and len(begun) < len(to_begin):
                        source = begun[told.watch] = to_begin[len(begun)]
                        if from_now and told.revision > revisions[source]:
                            late[source] = told.revision
                        if len(begun) == len(to_begin):
                            self._make_up(generation, revisions, late)
                    with self._changed:
                        if self._generation != generation:
                            return
                        if told.events and told.watch in begun:
                            self._listeners.tell(begun[told.watch], told.events)
            raise NoAnswer("the watch has ended")
        finally:
            with self._changed:
                self._stream = None

    def _make_up(
        self, generation: int, revisions: Mapping[Watched, int], late: Mapping[Watched, int]
    ) -> None:
        """Have listeners look again that have missed something before their watches began.

        Args:
            generation: The stream's.
            revisions: From which on the watches would have had to tell.
            late: From which on some of them do.
        """
        missed = self._missed(late, revisions) if late else frozenset()
        with self._changed:
            for source in missed if self._generation == generation else ():
                self._listeners.miss(source, late[source])

    def _missed(
        self, late: Mapping[Watched, int], revisions: Mapping[Watched, int]
    ) -> Set[Watched]:
        """Those of the watches that may have missed something.

        Of many keys nobody can tell which have gone; of one it is read whether it is as it was.
        """
        if any(source.is_prefix for source in late):
            return late.keys()
        try:
            found = self._gateway.read(*(read(source.key) for source in late)).answers
        except LeaseError:
            return late.keys()
        return {
            source
            for source, each in zip(late, found)
            if source.is_news(each.first, revisions[source])
        }
