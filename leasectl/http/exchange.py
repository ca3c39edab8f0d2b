"""A request and its response, limited in time and size.

The caller waits in poll(2), beside whatever else may end the wait. A thread does the request,
because the lookup of a name can't be ended: then the thread is left alone. Otherwise giving up ends
the connection, or first only our half of it, so that a grant still arrives. On a kept connection
most requests need no wait: the caller sends and reads by itself, and a thread goes on with those
that take longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from threading import Lock, current_thread, main_thread
from typing import TYPE_CHECKING

from leasectl.http.messages import Answer, Call, Incoming
from leasectl.http.no_answer import NOT_IN_TIME, NotInTime, WatchEnded, too_long
from leasectl.http.transport import Sending, Transport
from leasectl.http.worker import Worker
from leasectl.system.clock import Clock, earliest
from leasectl.system.poll import Interrupt, sleep
from leasectl.system.threads import NoThread
from leasectl.system.wakeup import Wakeup

if TYPE_CHECKING:
    from leasectl.http.proxied import ProxiedSending, ProxiedTransport
    from leasectl.http.settings import Settings
    from leasectl.http.tls import Trust

# Go's server answers a half-closed connection at once; this is for the way there and back.
LINGER_SECONDS = 0.5


def trust_for(url: str, settings: Settings) -> Trust | None:
    """Return what is needed for TLS with the server of a URL; None without TLS."""
    if not url.startswith("https:"):
        return None
    from leasectl.http.tls import trust_of  # it loads ssl, which takes a MiB

    return trust_of(settings)


class Client:
    """Sends one request at a time, to any servers. One thread may use it, or several in turn.

    Args:
        clock: Where times come from.
        trust: For ``https://``; None where there is nothing to verify. Its files are looked at
            before each request.
        keeps_connections: Use a connection for the next request, too: with TLS, a new one costs
            more than the request. But a server may close it just when it is used again, and then it
            isn't known whether the request was carried out.
        heeds_environment: Use ``http_proxy`` and its like.
        proxy_url: The HTTP proxy to go through, whatever the environment says; None for none.
        connect_seconds: How long it may take to connect, at each address that a name has.
        longest_bytes: How long an answer may be, or a line of a stream.
    """

    _worker: Worker | None = None  # also of one that couldn't be made

    def __init__(
        self,
        *,
        clock: Clock,
        trust: Trust | None = None,
        keeps_connections: bool = True,
        heeds_environment: bool = False,
        proxy_url: str | None = None,
        connect_seconds: float,
        longest_bytes: int,
    ) -> None:
        self._clock = clock
        self._longest_bytes = longest_bytes
        self._transport: Transport | ProxiedTransport
        if heeds_environment or proxy_url is not None:
            from leasectl.http.proxied import ProxiedTransport  # which takes long to load

            self._transport = ProxiedTransport(
                trust=trust,
                keeps_connections=keeps_connections,
                proxy_url=proxy_url,
                connect_seconds=connect_seconds,
            )
        else:
            self._transport = Transport(
                trust=trust, keeps_connections=keeps_connections, connect_seconds=connect_seconds
            )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._dismiss()

    def close(self) -> None:
        """End all connections, and the thread."""
        self._transport.close()
        self._dismiss()

    @property
    def is_outdated(self) -> bool:
        """Whether a refusal is none any more, since the files of ``trust`` have changed."""
        return self._transport.is_outdated

    def ask(
        self,
        call: Call,
        *,
        seconds: float | None,
        interrupts: Sequence[Interrupt] = (),
        tick: Callable[[float], float | None] = lambda now: None,
        late: Callable[[Answer | None], object] | None = None,
    ) -> Answer:
        """Send a request and wait for its answer.

        Args:
            call: The request.
            seconds: How long it may take in all, suspend included; None: as long as it takes.
            interrupts: What ends the wait with an error.
            tick: Called with the time, at once and whenever it said; tells when it wants to be
                called next.
            late: Where what was granted must not be lost. Giving up then closes our half of the
                connection only: the server sees that and ends its wait, and what it had granted
                by then still arrives and is handed to this. None is handed to it when the server
                may have granted something and didn't say.

        Raises:
            NotInTime: Not in time.
            NoAnswer: None, or one that is longer than anybody asked for.
            LeaseError: Files that say whom to trust can't be used, or an interrupt says so.
        """
        exchange = _Exchange(
            self._transport.new_sending(call, own_connection=False), self._longest_bytes
        )
        until = None if seconds is None else self._clock.elapsed() + seconds
        in_time = False
        try:
            in_time = self._get(exchange, until, interrupts, tick, may_begin=late is None)
        finally:
            if not in_time:
                self._give_up(exchange, lingers=late is not None)
            exchange.close()
            if not in_time and late is not None:
                exchange.tell(late)
        if not in_time:
            raise NotInTime(NOT_IN_TIME, sent=exchange.sending.is_sent)
        return exchange.result()

    def stream(self, call: Call) -> Stream:
        """Request an endless answer, which the caller reads.

        It has a connection of its own, which ends with it.
        """
        self._transport.end_kept(call.url)
        sending = self._transport.new_sending(call, own_connection=True)
        return Stream(sending, self._longest_bytes)

    def _get(
        self,
        exchange: _Exchange,
        until: float | None,
        interrupts: Sequence[Interrupt],
        tick: Callable[[float], float | None],
        *,
        may_begin: bool,
    ) -> bool:
        """Wait for the answer until a deadline; return whether it has come."""
        begun_fd = exchange.begin() if may_begin else None
        if begun_fd is not None:
            if not self._wait(begun_fd, until, interrupts, tick):
                return False
            if exchange.finish():
                return True
        done_fd = exchange.begin_to_wait()
        self._assign(exchange.run)
        return self._wait(done_fd, until, interrupts, tick)

    def _assign(self, work: Callable[[], object]) -> None:
        if self._worker is None or not self._worker.is_alive():
            try:
                self._worker = Worker()
            except NoThread:
                if current_thread() is main_thread():
                    raise  # a signal has to end its wait
                work()
                return
        self._worker.assign(work)

    def _dismiss(self) -> None:
        """Let its thread end, once it has done what it was assigned."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.dismiss()

    def _wait(
        self,
        done_fd: int,
        until: float | None,
        interrupts: Sequence[Interrupt],
        tick: Callable[[float], float | None],
    ) -> bool:
        now = self._clock.elapsed
        while True:
            wake_at = earliest(until, tick(now()))
            if sleep(wake_fds=(done_fd,), interrupts=interrupts, until=wake_at, now=now):
                return True
            if until is not None and now() >= until:
                return False

    def _give_up(self, exchange: _Exchange, *, lingers: bool) -> None:
        if lingers and exchange.sending.is_sent:
            exchange.sending.half_close()
            exchange.wait(LINGER_SECONDS)
        exchange.sending.cut()
        if not exchange.has_thread:
            return
        if lingers and exchange.sending.is_sent:
            exchange.wait(LINGER_SECONDS)  # for the thread to see that
        # Nobody knows when it will be free again: it may be looking for an address.
        self._dismiss()


class IdleClients:
    """The unused clients of an object that threads share."""

    def __init__(self) -> None:
        self._lock = Lock()
        # Under the lock:
        self._idle: list[tuple[object, Client]] = []
        self._is_closed = False

    @contextmanager
    def borrow(self, route: object, make: Callable[[], Client]) -> Iterator[Client]:
        """Use a client that no other thread uses.

        Args:
            route: What the client is for; unused clients for another route are closed.
            make: Makes a client if there is none.
        """
        with self._lock:
            outdated = [client for known, client in self._idle if known != route]
            self._idle = [each for each in self._idle if each[0] == route]
            client = self._idle.pop()[1] if self._idle else make()
        for each in outdated:
            each.close()
        try:
            yield client
        finally:
            with self._lock:
                is_kept = not self._is_closed
                if is_kept:
                    self._idle.append((route, client))
            if not is_kept:
                client.close()

    def close(self) -> None:
        """Close the unused clients now, and the others once they are given back."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for _, client in idle:
            client.close()


class _Exchange:
    """One request and its answer, which its asker gets, or a thread."""

    def __init__(self, sending: Sending | ProxiedSending, longest_bytes: int) -> None:
        self.sending = sending
        self.answer: Answer | None = None
        self._longest_bytes = longest_bytes
        self._error: BaseException | None = None
        self._done: Wakeup | None = None  # for whoever waits for the thread

    def begin(self) -> int | None:
        """Implements `Sending.begin`."""
        return self.sending.begin() if isinstance(self.sending, Sending) else None

    def finish(self) -> bool:
        """Implements `Sending.finish`; returns whether the answer is complete."""
        assert isinstance(self.sending, Sending), "it has been begun"
        incoming = self.sending.finish()
        if incoming is not None:
            self.answer = self._read(incoming)
        return incoming is not None

    @property
    def has_thread(self) -> bool:
        """Whether a thread gets it."""
        return self._done is not None

    def begin_to_wait(self) -> int:
        """Get the answer in a thread; return a descriptor that is readable when it is done."""
        self._done = Wakeup()
        return self._done.fd

    def run(self) -> None:
        """What the thread does."""
        assert self._done is not None
        try:
            with self.sending.open() as incoming:
                self.answer = self._read(incoming)
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def _read(self, incoming: Incoming) -> Answer:
        body = bytearray()
        for chunk in incoming.chunks:
            body += chunk
            if len(body) > self._longest_bytes:
                raise too_long(self._longest_bytes)
        return Answer(incoming.status, body.decode("utf-8", "replace"), incoming.headers)

    def wait(self, seconds: float) -> bool:
        """Wait for the thread, so long at most; returns whether it is done."""
        assert self._done is not None
        return self._done.wait(seconds)

    def tell(self, late: Callable[[Answer | None], object]) -> None:
        """Hand over what came after giving up, or that something may have been on its way."""
        if self.answer is not None or self.sending.is_sent:
            late(self.answer)

    def result(self) -> Answer:
        if self.answer is None:
            assert self._error is not None
            raise self._error
        return self.answer

    def close(self) -> None:
        """Close the connection."""
        if self._done is not None:
            self._done.close()
        elif isinstance(self.sending, Sending):
            self.sending.close()


class Stream:
    """An endless answer: a context manager that yields its lines.

    Args:
        sending: The request.
        longest_bytes: How long a line may be.

    Attributes:
        status: Of the answer, once its head is there; 0 before.
        headers: Of the answer, once its head is there.
    """

    def __init__(self, sending: Sending | ProxiedSending, longest_bytes: int) -> None:
        self._sending = sending
        self._longest_bytes = longest_bytes
        self._incoming: AbstractContextManager[Incoming] = sending.open()
        self.status = 0
        self.headers: Mapping[str, str] = {}

    def __enter__(self) -> Iterator[str]:
        """Send the request and wait for the head of its answer.

        Raises:
            NoAnswer: None; or, inside, no further line, or one that doesn't end. Also when it is
                `cut`.
            LeaseError: Files that say whom to trust can't be used.
        """
        incoming = self._incoming.__enter__()
        self.status, self.headers = incoming.status, incoming.headers
        return self._lines(incoming)

    def __exit__(self, *reason: object) -> bool | None:
        return self._incoming.__exit__(*reason)  # type: ignore[arg-type]

    def cut(self) -> None:
        """End it, from any thread and at any time: before it has begun, too."""
        self._sending.cut()

    def _lines(self, incoming: Incoming) -> Iterator[str]:
        begun = bytearray()
        for chunk in incoming.chunks:
            first, *others = chunk.split(b"\n")
            begun += first  # to look for an end in all of it again would take longer each time
            for other in others:
                yield begun.decode("utf-8", "replace")
                begun = bytearray(other)
            if len(begun) > self._longest_bytes:
                raise too_long(self._longest_bytes)
        if begun:
            yield begun.decode("utf-8", "replace")


class CuttableStream:
    """What a watch has of its stream: any thread may end it, before it has begun, too."""

    def __init__(self) -> None:
        self._lock = Lock()
        # Under the lock:
        self._client: Client | None = None
        self._stream: Stream | None = None
        self._is_cut = False

    def __exit__(self, *reason: object) -> None:
        with self._lock:
            stream, self._stream = self._stream, None
            client, self._client = self._client, None
        if stream is not None:
            stream.__exit__(*reason)
        if client is not None:
            client.close()

    def cut(self) -> None:
        """End it, from any thread and at any time: before it has begun, too."""
        with self._lock:
            self._is_cut = True
            stream = self._stream
        if stream is not None:
            stream.cut()

    def _note(self, client: Client, stream: Stream) -> None:
        """Record what is to be cut and closed; WatchEnded if it was cut already."""
        with self._lock:
            if self._is_cut:
                raise WatchEnded("it was given up")
            self._client, self._stream = client, stream
