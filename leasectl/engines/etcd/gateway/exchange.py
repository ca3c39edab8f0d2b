"""One request to a member and its answer, in a time and of a length that no member can stretch.

The one place where httpx's errors become ours.
"""

from __future__ import annotations

import contextlib
import json
import queue
import re
import select
import signal
import socket
import ssl
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Callable, NamedTuple

import httpx

from leasectl.http.trust import Trust, TrustingTransport
from leasectl.text.printable import printable

CONNECT_SECONDS = 1.0
# Pools of many thousands of resources take a few MiB.
LONGEST_ANSWER_BYTES = 64 << 20
NOT_IN_TIME = "no answer in time"
_ERRNO = re.compile(r"^\[Errno -?[0-9]+\] ")
# OpenSSL's codes, which the ssl module doesn't name: it is another host's, or another IP address's.
_OTHER_NAME = (62, 64)


class NoAnswer(Exception):
    """A member gave no answer that counts: the request may or may not have been carried out.

    Args:
        text: Why.
        advice: What to do about it, where there is something in particular.
        sent: Whether the member can have got the request.
        lasting: Whether it would be the same the next time.
    """

    def __init__(
        self, text: str, *, advice: str = "", sent: bool = True, lasting: bool = False
    ) -> None:
        super().__init__(text)
        self.advice = advice
        self.sent = sent
        self.lasting = lasting


class Answer(NamedTuple):
    """What a member answered."""

    status: int
    text: str


class Line(httpx.Client):
    """A client that asks one thing at a time, and whose connection can be cut while it does.

    Connections are kept: with TLS a new one costs more than the request.

    Args:
        trust: For ``https://``; None for ``http://``, where there is nothing to verify.
    """

    def __init__(self, trust: Trust | None = None) -> None:
        self._trusting = None if trust is None else TrustingTransport(trust)
        super().__init__(verify=False, transport=self._trusting, trust_env=False)
        self._lock = threading.Lock()
        # Under the lock:
        self._exchange: _Exchange | None = None  # the one under way
        self._sockets: dict[str, socket.socket] = {}
        self._worker: _Worker | None = None
        self._dismiss: Callable[[], object] = lambda: None

    @property
    def is_outdated(self) -> bool:
        """Whether a refusal is none any more, since the files of ``trust`` have changed."""
        return self._trusting is not None and self._trusting.is_outdated

    def ask(
        self,
        endpoint: str,
        path: str,
        body: Mapping[str, Any],
        *,
        headers: Mapping[str, str],
        seconds: float,
        only_now: bool = False,
    ) -> Answer:
        """POST JSON and wait for the answer, for so many seconds at most.

        httpx's own limits are on each read and each address, and there is none on finding an
        address by its name. So the request is made in a thread, which is given up in time.

        Args:
            endpoint: The member's address.
            path: What is asked of it.
            body: The JSON.
            headers: To be sent along.
            seconds: How long it may take in all.
            only_now: It must not be done later, after whoever asks may have died.

        Raises:
            NoAnswer: None came, or not all of it in time, or more than anybody asked for.
        """
        timeout = httpx.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))
        text = json.dumps(body).encode()
        wanted = {
            **headers,
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "Content-Length": str(len(text)),
        }
        content: bytes | Iterator[bytes] = text
        if only_now:
            wanted["Expect"] = "100-continue"
            content = self._once_heard(endpoint, text, seconds)
        request = self.build_request(
            "POST", endpoint + path, content=content, headers=wanted, timeout=timeout
        )
        exchange = _Exchange(self, request, endpoint)
        self._set_exchange(exchange)
        if self._worker is None or not self._worker.is_alive():  # it doesn't outlive a fork
            self._worker = _Worker()
            self._dismiss = weakref.finalize(self, self._worker.dismiss)
        self._worker.assign(exchange.run)
        try:
            answer = exchange.answer(seconds)
        except BaseException:
            self._set_exchange(None)
            self.cut(endpoint)
            # Nobody knows when it will be free again: it may be looking for an address.
            self._dismiss()
            self._worker = None
            raise
        self._set_exchange(None)
        return answer

    def _set_exchange(self, exchange: _Exchange | None) -> None:
        with self._lock:
            self._exchange = exchange

    def _once_heard(self, endpoint: str, body: bytes, seconds: float) -> Iterator[bytes]:
        """A body that is sent when the member says that it is there: RFC 9110, 10.1.1.

        What a member that is stopped has been sent it does when it goes on, although whoever asked
        for it is gone. (With TLS, what it says right after a new connection may be something else.)
        """
        with self._lock:
            connected = self._sockets.get(endpoint)
        if connected is None or connected.fileno() < 0:
            raise httpx.WriteError("the connection was cut")
        poll = select.poll()
        poll.register(connected, select.POLLIN)
        if not poll.poll(seconds * 1000):
            raise httpx.WriteTimeout(NOT_IN_TIME)
        yield body

    def note(self, endpoint: str, connected: socket.socket, exchange: _Exchange) -> None:
        """Remember a connection to a member; end one that comes for what was given up before."""
        with self._lock:
            is_wanted = exchange is self._exchange
            if is_wanted:
                self._sockets[endpoint] = connected
        if not is_wanted:
            _shut(connected)

    def cut(self, endpoint: str) -> None:
        """End the connection to a member, if there is one."""
        with self._lock:
            connected = self._sockets.pop(endpoint, None)
        if connected is not None:
            _shut(connected)


class _Worker(threading.Thread):
    """Does one thing after the other; a new thread for each costs half as much as a request."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._assigned: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        # Or those that the main thread blocks later, to read them, would be taken here.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            work = self._assigned.get()
            if work is None:
                return
            work()
            del work  # or what it has in hand would stay until there is more to do

    def assign(self, work: Callable[[], None]) -> None:
        self._assigned.put(work)

    def dismiss(self) -> None:
        """Have it end once it is done."""
        self._assigned.put(None)


class _Exchange:
    def __init__(self, line: Line, request: httpx.Request, endpoint: str) -> None:
        self._line = line
        self._request = request
        self._endpoint = endpoint
        self._sent = False
        self._answer: Answer | None = None
        self._error: BaseException | None = None
        self._is_done = threading.Lock()
        self._is_done.acquire()
        request.extensions["trace"] = self._trace

    def run(self) -> None:
        try:
            response = self._line.send(self._request, stream=True)
            with contextlib.closing(response):
                self._answer = self._read(response)
        except BaseException as error:
            self._error = error
        finally:
            del self._request.extensions["trace"]  # which is of this exchange, which has it
            self._is_done.release()

    def answer(self, seconds: float) -> Answer:
        self._is_done.acquire(timeout=seconds)
        if self._answer is not None:
            return self._answer
        if self._error is None or isinstance(self._error, httpx.TimeoutException):
            raise NoAnswer(NOT_IN_TIME, sent=self._sent)
        if isinstance(self._error, (httpx.HTTPError, httpx.StreamError)):
            raise _translate(self._endpoint, self._error, sent=self._sent) from self._error
        raise self._error

    def _read(self, response: httpx.Response) -> Answer:
        body = bytearray()
        for chunk in response.iter_raw():
            body += chunk
            if len(body) > LONGEST_ANSWER_BYTES:
                text = f"its answer is longer than {LONGEST_ANSWER_BYTES} bytes"
                raise NoAnswer(text, lasting=True)
        return Answer(response.status_code, body.decode("utf-8", "replace"))

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            connected = info["return_value"].get_extra_info("socket")
            self._line.note(self._endpoint, connected, self)
        elif event.endswith("send_request_headers.started"):
            self._sent = True


def _shut(connected: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # Of the plain connection below: a TLS layer would first want to say goodbye.
        socket.socket.shutdown(connected, socket.SHUT_RDWR)


def _translate(endpoint: str, error: Exception, *, sent: bool) -> NoAnswer:
    tls = _tls_error(error)
    reason = (tls.reason or "") if tls else ""
    said = reason.replace("_", " ").lower() or _ERRNO.sub("", str(error)).rstrip(".")
    detail = printable(said or type(error).__name__, longest=80)
    if isinstance(tls, ssl.SSLCertVerificationError):
        if tls.verify_code in _OTHER_NAME:
            advice = "use a name that it has"
        else:
            advice = "name the file with its CA in LEASECTL_CA_FILE"
        said = printable(tls.verify_message.rstrip("."))
        return NoAnswer(
            f"its certificate isn't trusted ({said})",
            advice=advice,
            sent=sent,
            lasting=True,
        )
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return NoAnswer(
            f"it wants a certificate of ours that it trusts ({detail})",
            advice="name one in LEASECTL_CERT_FILE, and its key in LEASECTL_KEY_FILE",
            sent=sent,
            lasting=True,
        )
    if isinstance(tls, ssl.SSLEOFError) or reason == "WRONG_VERSION_NUMBER":
        return NoAnswer(detail, advice="without TLS its address is etcd://", sent=sent)
    if isinstance(error, httpx.RemoteProtocolError) and endpoint.startswith("http:"):
        return NoAnswer(detail, advice="with TLS its address is etcds://", sent=sent)
    return NoAnswer(detail, sent=sent)


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """What lies below an error of httpx, which carries it only as its cause."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error
