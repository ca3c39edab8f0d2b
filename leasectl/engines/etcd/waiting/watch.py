"""Follow one stream of watches to one member, in a thread.

A watch on a member that hangs or has lost its quorum stays silent and says nothing of it. So it
is believed only as long as the same member answers keep-alives and keeps up with others; whoever
finds that it doesn't calls `EtcdWatch.leave`, and the watches go on at the next member, each from
where it was.

A watch that begins in the past, and be it a moment ago, etcd has wait for up to 0.1 s with all that
it tells. So one who is alone, and can look again, has watches that begin now; then it is read what
they may have missed. For the next wait others are asked for on the same stream, whose request goes
on. Where it can't, as with TLS, a change means a new stream; also with a token, which etcd looks at
when a stream begins.

A cluster that was restored from an older copy has a smaller revision than listeners have seen, and
a watch from there on would be silent until the store passes it. So if a watch begins at a member
with a smaller revision, a linearizable read decides: either the member only lags, or the store went
back. Then all revisions are forgotten, and every listener looks again.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Set

from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import read
from leasectl.engines.etcd.waiting.events import EventsLost, parse_line
from leasectl.engines.etcd.waiting.listeners import Listener, Listeners
from leasectl.engines.etcd.waiting.stream_watches import StreamWatches
from leasectl.engines.etcd.waiting.targets import Watched, WatchTarget
from leasectl.errors import LeaseError
from leasectl.http.exchange import Client, Stream
from leasectl.http.messages import Call
from leasectl.http.no_answer import NoAnswer
from leasectl.system.backoff import Backoff, Pauses
from leasectl.system.threads import start_thread

_HEADERS_SECONDS = 2.0
# Whatever is in between may wait for the end of a request before it passes it on.
_BEGIN_SECONDS = 2.0
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
        self._watches: StreamWatches | None = None  # its own, once others may come and go on it
        self._goes_on = may_skip  # as far as is known
        self._is_for_later = False  # what is missing of a target, or may have been missed

    @property
    def member(self) -> int:
        """The number of the member that is listened to."""
        return self._member

    def start(self) -> None:
        """Start the thread."""
        start_thread("watch", self._run, failed=self._fail, repeats=True)

    def close(self) -> None:
        """Have the thread end, by itself: it may be waiting for a member that hangs."""
        with self._changed:
            self._is_closed = True
            self._begin_anew()

    def listen(self, listener: Listener, target: WatchTarget) -> bool:
        """Implements `Listeners.put`.

        Returns:
            Whether to all of its target; else it has to be completed, a little later. So it is
            where that costs little: with one who is alone, whose stream goes on.
        """
        with self._changed:
            goes_on = self._watches is not None and self._listeners.is_alone(listener)
            self._is_for_later = goes_on and bool(target.later)
            self._put(listener, target if self._is_for_later else target.whole)
            return not self._is_for_later

    def complete(self, listener: Listener, target: WatchTarget) -> None:
        """Listen to all of a target, if that is still what is listened for."""
        with self._changed:
            if self._is_for_later and self._listeners.is_waiting_for(listener, target):
                self._is_for_later = False
                self._put(listener, target.whole)

    def _put(self, listener: Listener, target: WatchTarget) -> None:
        """Like `Listeners.put`, with the lock held."""
        if self._listeners.put(listener, target) and not self._go_on():
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

    def _go_on(self) -> bool:
        """Have the stream tell of what is listened for now; returns whether it does. With the lock
        held."""
        if self._stream is None or self._watches is None or not self._listeners.is_for_one:
            return False
        more = self._watches.change(self._listeners.revisions)
        return more is not None and (not more or self._stream.send(more.encode()))

    def _begin_anew(self) -> None:
        """Have the stream made anew; with the lock held."""
        self._watches = None
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

    def _fail(self) -> None:
        """After an error of the thread: what it had to tell of may be lost."""
        with self._changed:
            generation = self._generation
        self._have_all_look(generation)

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
        endpoint, silence = self._gateway.endpoints[member], self._longest_silence_seconds
        goes_on = self._goes_on and from_now and not headers and endpoint.startswith("http:")
        watches = StreamWatches(revisions, from_now=from_now, has_progress=silence is not None)
        stream = client.stream(
            Call(
                endpoint + "/v3/watch",
                watches.body.encode(),
                headers,
                longest_silence_seconds=_BEGIN_SECONDS if goes_on else silence,
                goes_on=goes_on,
                is_terse=True,
            )
        )
        with self._changed:
            if self._generation != generation:
                return
            self._stream = stream
        try:
            with stream as lines:
                for line in lines:
                    told = parse_line(line)
                    with self._changed:
                        if self._generation != generation:
                            return
                        source = watches.hear(told)
                        if source in self._listeners.revisions and told.events:
                            self._listeners.tell(source, told.events)
                        unreached = watches.take_unreached()
                        late = {} if self._is_for_later else watches.take_late()
                        if goes_on and watches.have_begun and self._watches is None:
                            stream.listen_on()
                            self._watches = watches
                    if unreached and self._gateway.read().revision < unreached:
                        raise EventsLost
                    if late:
                        self._make_up(generation, late)
            raise NoAnswer("the watch has ended")
        except NoAnswer as reason:
            with self._changed:
                if self._generation == generation and self._watches is None and reason.sent:
                    self._goes_on = False
            raise
        finally:
            with self._changed:
                self._stream = self._watches = None

    def _make_up(self, generation: int, late: Mapping[Watched, tuple[int, int]]) -> None:
        """Have listeners look again that have missed something before their watches began.

        Args:
            generation: The stream's.
            late: As `StreamWatches.take_late` has it.
        """
        missed = self._missed({source: wanted for source, (wanted, _) in late.items()})
        with self._changed:
            for source in missed if self._generation == generation else ():
                self._listeners.miss(source, late[source][1])

    def _missed(self, late: Mapping[Watched, int]) -> Set[Watched]:
        """Those of the watches that may have missed something, since a revision each.

        Of many keys nobody can tell which have gone; of one it is read whether it is as it was.
        """
        if any(source.is_prefix for source in late):
            return late.keys()
        try:
            found = self._gateway.read(*(read(source.key) for source in late)).answers
        except LeaseError:
            return late.keys()
        return {
            source for source, each in zip(late, found) if source.is_news(each.first, late[source])
        }
