"""One connection to a server, over TCP or TLS. Any thread may end it."""

from __future__ import annotations

import contextlib
import socket
import time

from leasectl.http.http1 import Target
from leasectl.system.poll import is_readable
from leasectl.typed.hints import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

# A server that vanished is noticed after a minute, however long an answer may take.
KEEP_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
# Without it each request of two packets would wait for 40 ms.
_AT_ONCE = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
# Servers close those that nobody uses after a time of theirs; who is later may just miss that.
_LONGEST_IDLE_SECONDS = 5.0


class TcpConnection:
    """A connection, which is there.

    Args:
        connected: Its socket.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._idle_since = 0.0

    @classmethod
    def open(cls, target: Target, *, seconds: float) -> TcpConnection:
        """Connect over TCP.

        Args:
            target: Where to.
            seconds: How long it may take, at each address that a name has.

        Raises:
            OSError: It can't be had.
        """
        # Of a text Python would first make what it takes long to load for: of names that aren't
        # ASCII `parse_url` has done so.
        place = (target.host.encode(), target.port)
        connected = socket.create_connection(place, timeout=seconds)  # type: ignore[arg-type]
        try:
            for option in (*KEEP_ALIVE, _AT_ONCE):
                connected.setsockopt(*option)
        except BaseException:
            connected.close()
            raise
        return cls(connected)

    def secure(self, context: ssl.SSLContext, server_name: str) -> None:
        """Go on over TLS.

        Args:
            context: Whom to trust, and what to show.
            server_name: Whose certificate it has to be.

        Raises:
            OSError: It can't be had, or not with that.
        """
        context.set_alpn_protocols(["http/1.1"])
        secured = context.wrap_socket(
            self._socket, server_hostname=server_name.encode(), do_handshake_on_connect=False
        )
        self._socket = secured  # from here on it can be cut
        secured.do_handshake()

    def send(self, data: bytes) -> None:
        """Send all of it, however long that takes; OSError if that can't be."""
        self._socket.settimeout(None)
        self._socket.sendall(data)

    def send_now(self, data: bytes) -> int:
        """Send as much of it as takes no time, not over TLS; returns how many bytes that were."""
        with contextlib.suppress(BlockingIOError):
            return self._socket.send(data, socket.MSG_DONTWAIT)
        return 0

    def receive_now(self, most: int) -> bytes | None:
        """What has come, as `receive` has it, not over TLS; None for nothing yet."""
        with contextlib.suppress(BlockingIOError):
            return self._socket.recv(most, socket.MSG_DONTWAIT)
        return None

    def fileno(self) -> int:
        """Its descriptor, to be read when something comes."""
        return self._socket.fileno()

    def wait_for_more(self) -> None:
        """Wait until the server says something, or its end."""
        is_readable(self._socket.fileno())

    def listen(self, longest_silence_seconds: float | None) -> None:
        """Say for how long nothing may come; None for ever."""
        self._socket.settimeout(longest_silence_seconds)

    def receive(self, most: int) -> bytes:
        """Wait for what comes next, at most so many bytes; none at the end. OSError: it doesn't."""
        return self._socket.recv(most)

    def put_aside(self) -> None:
        """Nobody uses it from now on."""
        self._idle_since = time.monotonic()

    def is_usable(self) -> bool:
        """Tell whether one that was put aside may be used again: it hasn't been closed."""
        is_fresh = time.monotonic() - self._idle_since < _LONGEST_IDLE_SECONDS
        return is_fresh and not is_readable(self._socket.fileno(), 0)

    def half_close(self) -> None:
        """Close our half: it may still be answered."""
        shut(self._socket, socket.SHUT_WR)

    def cut(self) -> None:
        """End it under whoever uses it."""
        shut(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Have done with it; only for who uses it."""
        self._socket.close()


def shut(connected: socket.socket, how: int) -> None:
    """Shut a connection or one half of it, under whoever uses it; as `socket.shutdown` has it."""
    with contextlib.suppress(OSError):
        # Of the plain connection below: a TLS layer would first want to say goodbye.
        socket.socket.shutdown(connected, how)
