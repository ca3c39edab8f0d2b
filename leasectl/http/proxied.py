"""Send a request through an HTTP proxy, with httpx.

httpx has no word for closing one half of a connection, nor for ending a request from another
thread. Its trace tells which socket a request goes over; what is done to that, httpx notices.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from leasectl.http.http1 import KEEP_ALIVE, BadUrl, ProtocolError, shut
from leasectl.http.messages import Call, Incoming, headers_of, server_of
from leasectl.http.no_answer import NoAnswer, no_answer
from leasectl.http.tls import Trust
from leasectl.system.poll import is_readable
from leasectl.text.wording import printable

# Whatever was under way when they came, the request wasn't.
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.InvalidURL)
_LIBRARYS_ERRORS = (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL)


class ProxiedTransport:
    """The connections of one client, and the sockets that they are.

    Args:
        trust: For ``https://``; None where there is nothing to verify.
        keeps_connections: Use one for the next request, too.
        proxy_url: The HTTP proxy to go through, whatever the environment says; None to go by
            ``http_proxy`` and its like.
        connect_seconds: How long it may take to connect, at each address that a name has.
    """

    def __init__(
        self,
        *,
        trust: Trust | None,
        keeps_connections: bool,
        proxy_url: str | None,
        connect_seconds: float,
    ) -> None:
        self._trust = trust
        self._proxy_url = proxy_url
        self.keeps_connections = keeps_connections
        self.timeout = httpx.Timeout(None, connect=connect_seconds).as_dict()
        self._lock = threading.Lock()
        # Under the lock:
        self._context: ssl.SSLContext | None = None  # of all connections there are
        self._library: httpx.Client | None = None
        self._sockets: dict[str, socket.socket] = {}  # the last one to each server

    @property
    def is_outdated(self) -> bool:
        """Whether files of ``trust`` have changed since its connections were made."""
        return self._trust is not None and self._trust.is_outdated(self._context)

    def new_sending(self, call: Call, *, own_connection: bool) -> ProxiedSending:
        """A request, which isn't on its way yet; see `ProxiedSending`."""
        return ProxiedSending(self, call, own_connection=own_connection)

    def current(self, url: str) -> httpx.Client:
        """httpx's client, whose connections are made with the files as they are now.

        Raises:
            LeaseError: Those files can't be used.
        """
        if url.startswith("https:") and self._trust is None:
            raise ValueError("nothing says whom to trust")
        context = None if self._trust is None else self._trust.context()
        with self._lock:
            if self._library is None or context is not self._context:
                if self._library is not None:
                    self._library.close()
                self._library, self._context = self._make(context), context
            return self._library

    def _make(self, context: ssl.SSLContext | None) -> httpx.Client:
        verify = context or False  # False reads no file; what is trusted then isn't asked
        if self._proxy_url is None:
            try:
                return httpx.Client(verify=verify, trust_env=True)
            except (ImportError, ValueError) as error:  # SOCKS, or a scheme that it doesn't know
                why = str(error).partition(". ")[0]
                which = "the proxy in http_proxy, https_proxy or all_proxy"
                text = f"{which} can't be used (LEASECTL_TRUST_ENV=1): {why}"
                raise NoAnswer(text, sent=False) from error
        transport = httpx.HTTPTransport(
            verify=verify,
            trust_env=False,
            proxy=self._proxy_url,
            socket_options=KEEP_ALIVE,
            retries=0,
        )
        return httpx.Client(transport=transport, trust_env=False)

    def note(self, server: str, connected: socket.socket) -> None:
        """Remember which socket a connection to a server is."""
        with self._lock:
            self._sockets[server] = connected

    def last(self, server: str) -> socket.socket | None:
        """The last socket to a server. It may be closed by now."""
        with self._lock:
            return self._sockets.get(server)

    def end_kept(self, url: str) -> None:
        """Drop the kept connection, so that the next request opens a new one."""
        connected = self.last(server_of(url))
        if connected is not None:
            shut(connected, socket.SHUT_RDWR)

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            if self._library is not None:
                self._library.close()


class ProxiedSending:
    """One request on its way. What it is about may be ended by any thread.

    Args:
        transport: Over whose connections.
        call: What is asked.
        own_connection: It is the only one on its connection, or at least the last.
    """

    def __init__(self, transport: ProxiedTransport, call: Call, *, own_connection: bool) -> None:
        self._transport = transport
        self._call = call
        self._own_connection = own_connection or not transport.keeps_connections
        self._server = server_of(call.url)
        self._is_sent = False
        self._lock = threading.Lock()
        # Under the lock:
        self._socket = transport.last(self._server) if not self._own_connection else None
        self._is_cut = False

    @property
    def is_sent(self) -> bool:
        """Whether the server can have got it. Once it has been cut, that is final."""
        return self._is_sent

    @contextlib.contextmanager
    def open(self) -> Iterator[Incoming]:
        """Send it and wait for the head of its answer, for as long as it takes.

        Raises:
            NoAnswer: None that counts; also inside, when the rest is read.
            LeaseError: Files that say whom to trust can't be used.
        """
        try:
            library = self._transport.current(self._call.url)
            response = library.send(self._request(), stream=True)
            with contextlib.closing(response):
                # As they were sent: nobody has asked for compression.
                headers = dict(response.headers)
                yield Incoming(response.status_code, headers, self._chunks(response))
        except _LIBRARYS_ERRORS as error:
            raise self._no_answer(error) from error

    def half_close(self) -> None:
        """Close our half of its connection: it may still be answered."""
        with self._lock:
            connected = self._socket
        if connected is not None:
            shut(connected, socket.SHUT_WR)

    def cut(self) -> None:
        """End its connection, and one that is still to come as soon as it is there."""
        with self._lock:
            self._is_cut = True
            connected = self._socket
        if connected is not None:
            shut(connected, socket.SHUT_RDWR)

    def _chunks(self, response: httpx.Response) -> Iterator[bytes]:
        try:
            yield from response.iter_raw()
        except _LIBRARYS_ERRORS as error:
            raise self._no_answer(error) from error

    def _no_answer(self, error: Exception) -> NoAnswer:
        if isinstance(error, httpx.ProxyError):  # of CONNECT, after which nothing was sent
            return NoAnswer(
                f"its HTTP proxy refused CONNECT: {printable(str(error), longest=80)}", sent=False
            )
        sent = self._is_sent and not isinstance(error, _NEVER_SENT)
        return no_answer(_as_ours(error), url=self._call.url, sent=sent)

    def _request(self) -> httpx.Request:
        call = self._call
        content: bytes | Iterator[bytes] = call.body
        if call.only_now:
            content = self._once_heard(call.body)
        timeout = {**self._transport.timeout, "read": call.longest_silence_seconds}
        extensions: dict[str, Any] = {"timeout": timeout, "trace": self._trace}
        if call.server_name is not None:
            extensions["sni_hostname"] = call.server_name
        return httpx.Request(
            call.method,
            call.url,
            headers=headers_of(call, closes=self._own_connection),
            content=content,
            extensions=extensions,
        )

    def _once_heard(self, body: bytes) -> Iterator[bytes]:
        """Yield a body that is sent when the server says something: RFC 9110, 10.1.1.

        A stopped server carries out what it was sent when it goes on, even if the client is gone by
        then. (With TLS, what it says right after a new connection may be something else.)
        """
        with self._lock:
            connected = self._socket
        if connected is None or connected.fileno() < 0:
            raise httpx.WriteError("the connection was cut")
        is_readable(connected.fileno())  # also once it was cut
        yield body

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._note(info["return_value"].get_extra_info("socket"))
        elif event.endswith("send_request_headers.started"):
            # CONNECT only tells the proxy where the server is.
            self._is_sent = info["request"].method != b"CONNECT"

    def _note(self, connected: socket.socket) -> None:
        with self._lock:
            self._socket = connected
            is_cut = self._is_cut
        if is_cut:  # nobody waits any more for what it was to be
            shut(connected, socket.SHUT_RDWR)
        else:
            self._transport.note(self._server, connected)


def _as_ours(error: Exception) -> Exception:
    """An error of httpx as `no_answer` knows it."""
    if isinstance(error, httpx.TimeoutException):
        return socket.timeout(str(error))
    if isinstance(error, httpx.RemoteProtocolError):
        return ProtocolError(str(error))
    return BadUrl(str(error)) if isinstance(error, httpx.InvalidURL) else error
