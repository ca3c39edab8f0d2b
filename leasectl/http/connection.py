"""HTTP requests that can be given up without losing what they may have been granted.

The one place where httpx's errors become ours.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

import httpx

from leasectl.errors import BackendUnreachable, LeaseError, NoLease
from leasectl.http.settings import Settings, read_token
from leasectl.system.clock import Clock, earliest
from leasectl.system.poll import Interrupt, sleep
from leasectl.text.printable import printable

# Go's server answers a half-closed connection at once; this is for the way there and back.
LINGER_SECONDS = 0.5
_CONNECT_SECONDS = 5.0
_LONGEST_ANSWER_BYTES = 1 << 20
# A server that vanished is noticed after a minute, however long the wait may last.
_KEEP_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


class NotSent(BackendUnreachable):
    """No connection came about, so the server knows nothing of the request."""


class Loss(BackendUnreachable):
    """The request was sent and its answer didn't arrive: it may have been carried out."""


class TimeOver(NoLease):
    """The time for an answer has passed."""


class Answer(NamedTuple):
    """What a server answered. ``headers`` have lower-case names."""

    status: int
    text: str
    headers: Mapping[str, str]


class Connection:
    """Requests to one server, each on a connection of its own.

    A connection that is kept can be closed by the server just when it is used again, and then
    nobody knows whether the request was carried out.

    Args:
        url: The server's base address.
        settings: How to talk to it.
        clock: Where times come from.
    """

    def __init__(self, url: str, settings: Settings, *, clock: Clock) -> None:
        self._url = url.rstrip("/")
        self._settings = settings
        self._clock = clock

    def ask(
        self,
        path: str,
        *,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        interrupts: Sequence[Interrupt],
        until: float | None,
        tick: Callable[[float], float | None],
        late: Callable[[Answer | None], None],
    ) -> Answer:
        """POST, and wait for the answer as long as it takes.

        Giving up closes our side of the connection only. The server sees that and ends its wait;
        what it had granted by then still arrives and is handed to ``late``.

        Args:
            path: Below the base address.
            params: The query.
            headers: Beside the usual ones.
            interrupts: What ends the wait with an error.
            until: When the wait ends, CLOCK_BOOTTIME in seconds; None for no limit.
            tick: Called with the time, at once and whenever it said; tells when it wants to be
                called next.
            late: Told of an answer that came after giving up, or with None when the server may
                have granted something and didn't say.

        Raises:
            NotSent, Loss: No answer.
            TimeOver: Not in time.
        """
        with self._client() as client:
            request = client.build_request(
                "POST", f"{self._url}{path}", params=params, headers=headers
            )
            exchange = _Exchange(client, request)
            try:
                self._wait(exchange.done_fd, interrupts, until, tick)
            except BaseException:
                answer = exchange.give_up()
                if answer is not None or exchange.sent:
                    late(answer)
                raise
            finally:
                exchange.close()
            return exchange.answer()

    def tell(
        self, path: str, body: object, *, headers: Mapping[str, str], seconds: float
    ) -> Answer:
        """POST JSON and wait for the answer for so many seconds at most.

        Raises:
            NotSent, Loss: No answer.
        """
        now = self._clock.elapsed
        with self._client() as client:
            request = client.build_request("POST", self._url + path, json=body, headers=headers)
            exchange = _Exchange(client, request)
            try:
                # Not httpx's time limit, which a server that drips can stretch for ever.
                if not sleep(
                    wake_fds=(exchange.done_fd,), interrupts=(), until=now() + seconds, now=now
                ):
                    exchange.abort()
                    raise Loss(f"no answer from {self._url} in time")
            finally:
                exchange.close()
            return exchange.answer()

    def _wait(
        self,
        done_fd: int,
        interrupts: Sequence[Interrupt],
        until: float | None,
        tick: Callable[[float], float | None],
    ) -> None:
        now = self._clock.elapsed
        while True:
            next_tick = tick(now())
            wake = earliest(until, next_tick)
            if sleep(wake_fds=(done_fd,), interrupts=interrupts, until=wake, now=now):
                return
            if until is not None and now() >= until:
                raise TimeOver(f"no answer from {self._url} in time")

    def _client(self) -> httpx.Client:
        headers = {"Connection": "close"}
        if self._settings.token_file:
            headers["Authorization"] = f"Bearer {read_token(self._settings.token_file)}"
        verify = self._verify()
        timeout = httpx.Timeout(None, connect=_CONNECT_SECONDS)
        if self._settings.trust_env:
            return httpx.Client(headers=headers, timeout=timeout, verify=verify, trust_env=True)
        transport = httpx.HTTPTransport(
            verify=verify, trust_env=False, socket_options=_KEEP_ALIVE, retries=0
        )
        return httpx.Client(headers=headers, timeout=timeout, transport=transport, trust_env=False)

    def _verify(self) -> Any:
        if not self._url.startswith("https:"):
            return False  # sets up nothing; there is no certificate to verify
        from leasectl.http.tls import client_context

        return client_context(self._settings)


class _Exchange:
    """One request and its answer, in a thread of its own, so that the caller can poll."""

    def __init__(self, client: httpx.Client, request: httpx.Request) -> None:
        self.sent = False
        self.done_fd, self._done_write = os.pipe2(os.O_CLOEXEC)
        self._socket: socket.socket | None = None
        self._answer: Answer | None = None
        self._error: BaseException | None = None
        request.extensions["trace"] = self._trace
        self._request = request
        self._client = client
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            response = self._client.send(self._request, stream=True)
            with contextlib.closing(response):
                self._answer = _answer(response)
        except BaseException as error:
            self._error = error
        finally:
            os.close(self._done_write)

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._socket = info["return_value"].get_extra_info("socket")
        elif event.endswith("send_request_headers.started"):
            self.sent = True

    def answer(self) -> Answer:
        self._thread.join()
        if self._answer is not None:
            return self._answer
        if isinstance(self._error, httpx.HTTPError):
            raise _translate(str(self._request.url.copy_with(query=None)), self._error, self.sent)
        assert self._error is not None
        raise self._error

    def give_up(self) -> Answer | None:
        """Close our side, read on for a moment, then close the other."""
        self._shut(socket.SHUT_WR)
        self._thread.join(LINGER_SECONDS)
        self.abort()
        return self._answer

    def abort(self) -> None:
        """Close both sides."""
        self._shut(socket.SHUT_RDWR)
        self._thread.join(LINGER_SECONDS)

    def close(self) -> None:
        os.close(self.done_fd)

    def _shut(self, how: int) -> None:
        if self._socket is not None and self._answer is None:
            with contextlib.suppress(OSError):
                # Of the plain connection below: a TLS layer would first want to say goodbye.
                socket.socket.shutdown(self._socket, how)


def _answer(response: httpx.Response) -> Answer:
    body = b""
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > _LONGEST_ANSWER_BYTES:
            raise httpx.ReadError(f"the answer is longer than {_LONGEST_ANSWER_BYTES} bytes")
    return Answer(response.status_code, body.decode("utf-8", "replace"), dict(response.headers))


def _translate(url: str, error: httpx.HTTPError, sent: bool | None = None) -> LeaseError:
    before = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
    detail = printable(str(error) or type(error).__name__, longest=120)
    if before or sent is False:
        return NotSent(f"can't reach {url}: {detail}; is the server there?")
    return Loss(f"no answer from {url}: {detail}")
