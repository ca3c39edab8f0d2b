"""Send a request over a connection of our own.

Through a proxy they go over a library (`proxied`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from leasectl.http.http1 import (
    AnswerReader,
    BadUrl,
    ProtocolError,
    Target,
    TcpConnection,
    parse_url,
    request_head,
)
from leasectl.http.messages import Call, Incoming, headers_of, server_of
from leasectl.http.no_answer import NoAnswer, no_answer

if TYPE_CHECKING:
    import ssl

    from leasectl.http.tls import Trust

_FAILURES = (OSError, ProtocolError, BadUrl)
_PIECE_BYTES = 1 << 16


class _NotAllThere(Exception):
    """The answer isn't complete yet."""


class Transport:
    """The connections of one client.

    Args:
        trust: For ``https://``; None where there is nothing to verify.
        keeps_connections: Use one for the next request, too.
        connect_seconds: How long it may take to connect, at each address that a name has.
    """

    def __init__(
        self, *, trust: Trust | None, keeps_connections: bool, connect_seconds: float
    ) -> None:
        self._trust = trust
        self.keeps_connections = keeps_connections
        self.connect_seconds = connect_seconds
        self._lock = threading.Lock()
        # Under the lock:
        self._context: ssl.SSLContext | None = None  # of all connections that were put aside
        self._idle: dict[tuple[str, str | None], TcpConnection] = {}  # by server and its name
        self._is_closed = False

    @property
    def is_outdated(self) -> bool:
        """Whether files of ``trust`` have changed since its connections were made."""
        return self._trust is not None and self._trust.is_outdated(self._context)

    @property
    def is_plain(self) -> bool:
        """Whether the connection needs no certificates."""
        return self._trust is None

    def new_sending(self, call: Call, *, own_connection: bool) -> Sending:
        """A request, which isn't on its way yet; see `Sending`."""
        return Sending(self, call, own_connection=own_connection)

    def context(self, url: str) -> ssl.SSLContext | None:
        """What connections are made with, of the files as they are now; None without TLS.

        Raises:
            LeaseError: Those files can't be used.
        """
        if url.startswith("https:") and self._trust is None:
            raise ValueError("nothing says whom to trust")
        context = None if self._trust is None else self._trust.context()
        with self._lock:
            if context is not self._context:
                self._context = context
                self._close_idle()
        return context

    def take_idle(self, call: Call) -> TcpConnection | None:
        """A connection that was put aside, to the server of a request; None for none."""
        with self._lock:
            idle = self._idle.pop(call.kept_for, None)
        if idle is None or idle.is_usable():
            return idle
        idle.close()
        return None

    def put_aside(
        self, call: Call, connection: TcpConnection, context: ssl.SSLContext | None
    ) -> None:
        """Keep a connection for the next request to the same server."""
        connection.put_aside()
        with self._lock:
            keeps = not self._is_closed and context is self._context
            left_over = self._idle.pop(call.kept_for, None) if keeps else connection
            if keeps:
                self._idle[call.kept_for] = connection
        if left_over is not None:
            left_over.close()

    def end_kept(self, url: str) -> None:
        """Drop the kept connection, so that the next request opens a new one."""
        with self._lock:
            for kept in [each for each in self._idle if each[0] == server_of(url)]:
                self._idle.pop(kept).close()

    def close(self) -> None:
        """Close all idle connections now, and the others when they become idle."""
        with self._lock:
            self._is_closed = True
            self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.popitem()[1].close()


class Sending:
    """One request on its way. What it is about may be ended by any thread.

    Args:
        transport: Over whose connections.
        call: What is asked.
        own_connection: It is the only one on its connection, or at least the last.
    """

    def __init__(self, transport: Transport, call: Call, *, own_connection: bool) -> None:
        self._transport = transport
        self._call = call
        self._own_connection = own_connection or not transport.keeps_connections
        self._is_sent = False
        # What has been done of it without waiting: what is left to send then, and what has come.
        self._left: bytes | None = None
        self._come = b""
        self._lock = threading.Lock()
        # Under the lock:
        self._connection: TcpConnection | None = None
        self._is_cut = False

    @property
    def is_sent(self) -> bool:
        """Whether the server can have got it. Once it has been cut, that is final."""
        return self._is_sent

    def begin(self) -> int | None:
        """Send it on a kept connection, if that takes no time.

        The caller has to `close` it, unless `open` does the rest.

        Returns:
            The descriptor to poll until there is something for `finish`. None if there is no such
            connection, or it didn't take all of it: then `open` does the rest.

        Raises:
            NoAnswer: That connection has ended.
        """
        call = self._call
        may_wait = call.only_now or call.longest_silence_seconds is not None
        if self._own_connection or may_wait or not self._transport.is_plain:
            return None
        idle = self._transport.take_idle(call)
        if idle is None:
            return None
        self._note(idle)
        with self._telling():
            asked = self.request_bytes(parse_url(call.url))
            self._is_sent = True
            self._left = asked[idle.send_now(asked) :]
        return None if self._left else idle.fileno()

    def finish(self) -> Incoming | None:
        """Read the answer to what was begun; None where not all of it has come: `open` reads that.

        Raises:
            NoAnswer: None that counts.
        """
        connection = self._begun()
        with self._telling():
            come = connection.receive_now(_PIECE_BYTES)
            pieces = iter(() if come is None else (come,))

            def receive(most: int) -> bytes:
                for piece in pieces:
                    return piece
                raise _NotAllThere

            reader = AnswerReader(receive)
            try:
                head = reader.head()
                body = b"".join(reader.body())
            except _NotAllThere:
                self._come = come or b""
                return None
        if reader.leaves_connection:
            self._leave(connection, None)
        return Incoming(head.status, head.headers, iter((body,)))

    @contextlib.contextmanager
    def open(self) -> Iterator[Incoming]:
        """Send it and wait for the head of its answer, for as long as it takes.

        Raises:
            NoAnswer: None that counts; also inside, when the rest is read.
            LeaseError: Files that say whom to trust can't be used.
        """
        context = self._transport.context(self._call.url)
        with self._telling():
            target = parse_url(self._call.url)
            connection = self._connect(target, context) if self._left is None else self._begun()
        try:
            with self._telling():
                reader = self._ask(connection, target)
                head = reader.head()
            yield Incoming(head.status, head.headers, self._chunks(reader))
            if reader.leaves_connection and not self._own_connection:
                self._leave(connection, context)
        finally:
            self.close()

    def half_close(self) -> None:
        """Close our half of its connection: it may still be answered."""
        with self._lock:
            if self._connection is not None:
                self._connection.half_close()

    def cut(self) -> None:
        """End its connection, and one that is still to come as soon as it is there."""
        with self._lock:
            self._is_cut = True
            if self._connection is not None:
                self._connection.cut()

    def close(self) -> None:
        """Close its connection, if it is still its own; for who uses that."""
        with self._lock:  # or somebody would end what has its number by then
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Say what goes wrong inside."""
        try:
            yield
        except _FAILURES as error:
            raise self._no_answer(error) from error

    def _no_answer(self, error: Exception) -> NoAnswer:
        return no_answer(error, url=self._call.url, sent=self._is_sent)

    def _connect(self, target: Target, context: ssl.SSLContext | None) -> TcpConnection:
        call = self._call
        idle = None if self._own_connection else self._transport.take_idle(call)
        if idle is not None:
            self._note(idle)
            return idle
        connection = TcpConnection.open(target, seconds=self._transport.connect_seconds)
        try:
            self._note(connection)
            if target.is_tls:
                assert context is not None, "it says whom to trust"
                connection.secure(context, call.server_name or target.host)
                self._note(connection)  # which nobody could cut while it changed
        except BaseException:
            self.close()
            raise
        return connection

    def _begun(self) -> TcpConnection:
        """The connection on which the request was begun."""
        assert self._connection is not None, "it has been begun, and not closed"
        return self._connection

    def _note(self, connection: TcpConnection) -> None:
        """Record the connection as the one to cut when the request is given up."""
        with self._lock:
            self._connection = connection
            if self._is_cut:  # nobody waits any more for what it was to be
                connection.cut()

    def _leave(self, connection: TcpConnection, context: ssl.SSLContext | None) -> None:
        """Leave a connection to others; from then on it isn't ours to end."""
        with self._lock:
            self._connection = None
        self._transport.put_aside(self._call, connection, context)

    def _ask(self, connection: TcpConnection, target: Target) -> AnswerReader:
        call = self._call
        asked = self.request_bytes(target) if self._left is None else self._left
        with self._lock:
            if self._is_cut:
                raise ProtocolError("the connection was cut")
            self._is_sent = True
        if call.only_now:
            connection.send(asked[: len(asked) - len(call.body)])
            # What a server that is stopped has been sent it does when it goes on, although whoever
            # asked for it is gone: RFC 9110, 10.1.1. (With TLS, what it says right after a new
            # connection may be something else.)
            connection.wait_for_more()
            connection.send(call.body)
        else:
            connection.send(asked)
        connection.listen(call.longest_silence_seconds)

        def receive(most: int) -> bytes:
            come, self._come = self._come, b""
            return come or connection.receive(most)

        return AnswerReader(receive)

    def request_bytes(self, target: Target) -> bytes:
        """All that is sent; asked for right before that."""
        call = self._call
        headers = headers_of(call, closes=self._own_connection)
        return request_head(call.method, target, headers) + call.body

    def _chunks(self, reader: AnswerReader) -> Iterator[bytes]:
        with self._telling():
            yield from reader.body()
