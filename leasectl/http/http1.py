"""HTTP/1.1 on a socket."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from leasectl.system.poll import is_readable
from leasectl.text.wording import printable

if TYPE_CHECKING:
    import ssl


# As much as h11 takes: a head that is longer is no server's that means well.
_LONGEST_HEAD_BYTES = 100 * 1024
_LONGEST_SIZE_DIGITS = 16  # of a chunk, in hex
_MOST_INTERIM = 100  # heads before the one that counts
_VERSIONS = (b"HTTP/1.1", b"HTTP/1.0")
_WITHOUT_BODY = (204, 304)
_OF_NAMES = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class ProtocolError(Exception):
    """What a server said is no answer, or not all of one."""


class BadUrl(ValueError):
    """A URL that no client could reach."""


class Target(NamedTuple):
    """Where a URL leads.

    Args:
        is_tls: Over TLS.
        host: A name, or an address without brackets.
        port: Its own or the usual one.
        authority: The host as a server is told of it, with the port if it isn't the usual one.
        path: What is asked for there, with the query.
    """

    is_tls: bool
    host: str
    port: int
    authority: str
    path: str


@lru_cache(maxsize=64)  # one server is asked the same few things again and again
def parse_url(url: str) -> Target:
    """Take a URL apart.

    Raises:
        BadUrl: It is none of ``http://`` or ``https://``, or can't be one.
    """
    scheme, _, rest = url.partition("://")
    if scheme not in ("http", "https"):
        raise BadUrl(f"{scheme}:// isn't http:// or https://")
    cut = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    authority, path = rest[:cut], rest[cut:].partition("#")[0]
    host, colon, port = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        host, port = authority, ""
    if port and not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise BadUrl(f'"{port}" is not a valid port')
    if host.startswith("[") and host.endswith("]"):
        bare = host[1:-1]
    else:
        bare = host = _ascii_host(host)
    usual = 443 if scheme == "https" else 80
    number = int(port) if port else usual
    named = host if number == usual else f"{host}:{number}"
    path = path if path.startswith("/") else f"/{path}"
    return Target(scheme == "https", bare, number, named, _quoted(path))


def _ascii_host(host: str) -> str:
    if not host or "@" in host or not host.isprintable() or " " in host:
        raise BadUrl(f'"{host}" is not a valid host')
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError as error:
        raise BadUrl(f'"{host}" is not a valid host: {error}') from None


def _quoted(path: str) -> str:
    if path.isascii() and path.isprintable() and " " not in path:
        return path
    from urllib.parse import quote  # which takes long to load

    return quote(path, safe="!#$%&'()*+,/:;=?@[]~")


def request_head(method: str, target: Target, headers: Iterable[tuple[str, str]]) -> bytes:
    """What a request begins with.

    Args:
        method: What is done.
        target: To what.
        headers: Beside that of the host.

    Raises:
        ProtocolError: A header can't be sent as it is.
    """
    lines = [f"{method} {target.path} HTTP/1.1", f"Host: {target.authority}"]
    for name, value in headers:
        # What would end a value would begin another header with it, that nobody meant.
        ends = "\r" in value or "\n" in value or "\0" in value
        if ends or not _is_name(name.encode()):
            raise ProtocolError(f"header {name!r} can't be sent")
        lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, "", ""]).encode()


class Head(NamedTuple):
    """What an answer begins with. ``headers`` have lower-case names."""

    status: int
    headers: Mapping[str, str]


class AnswerReader:
    """Reads one answer.

    Args:
        receive: Waits for more of it, and gives at most so many bytes; none at its end.
    """

    def __init__(self, receive: Callable[[int], bytes]) -> None:
        self._receive = receive
        self._buffer = bytearray()
        self._is_ended = False
        self._keeps = False
        self._head = Head(0, {})

    @property
    def leaves_connection(self) -> bool:
        """Whether all of it was read and another may follow on the same connection."""
        return self._is_ended and self._keeps and not self._buffer

    def head(self) -> Head:
        """Read its head; what only says that it is still to come is passed over.

        Raises:
            ProtocolError: It is none.
            OSError: It doesn't come.
        """
        for _ in range(_MOST_INTERIM):
            version, status, headers = self._read_head()
            if status >= 200:
                break
        else:
            raise ProtocolError("it sent only interim answers (1xx)")
        closes = "close" in headers.get("connection", "").lower()
        self._keeps = version == _VERSIONS[0] and not closes
        self._head = Head(status, headers)
        return self._head

    def body(self) -> Iterator[bytes]:
        """Read what follows its head, in pieces as they come.

        Raises:
            ProtocolError, OSError: Not all of it comes.
        """
        headers = self._head.headers
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        if self._head.status in _WITHOUT_BODY:
            pass
        elif coding is not None:
            if coding.lower() != "chunked":
                raise ProtocolError(
                    f"its answer is encoded by {printable(coding)}, which wasn't requested"
                )
            yield from self._chunks()
        elif length is not None:
            yield from self._take(_parse_length(length))
        else:
            self._keeps = False
            yield from self._rest()
        self._is_ended = True

    def _read_head(self) -> tuple[bytes, int, dict[str, str]]:
        lines = self._head_lines()
        first = next(lines, b"")
        version, _, rest = first.partition(b" ")
        code = rest[:3]
        if version not in _VERSIONS or not code.isdigit() or rest[3:4].strip():
            raise ProtocolError(f"illegal status line: {_shown(first)}")
        headers: dict[str, str] = {}
        name = ""
        for line in lines:
            if line[:1] in b" \t" and name:  # the line before goes on
                headers[name] += " " + _text(line)
                continue
            name, text = _parse_header(line)
            headers[name] = f"{headers[name]}, {text}" if name in headers else text
        return version, int(code), headers

    def _head_lines(self) -> Iterator[bytes]:
        """The lines of a head up to the empty one at its end, which is read as well."""
        if not self._buffer:
            self._more(at_start=True)
        end = self._buffer.find(b"\r\n\r\n")
        if 0 <= end < _LONGEST_HEAD_BYTES:  # it mostly comes in one piece
            lines = bytes(self._buffer[:end]).split(b"\r\n")
            if not any(b"\n" in line for line in lines):
                del self._buffer[: end + 4]
                yield from lines
                return
        yield from self._lines()

    def _lines(self) -> Iterator[bytes]:
        """The lines up to an empty one, which is read as well."""
        left = _LONGEST_HEAD_BYTES
        while line := self._line(left):
            yield line
            left -= len(line) + 2

    def _line(self, most: int) -> bytes:
        """Read a line, without its end."""
        searched = 0
        while True:
            end = self._buffer.find(b"\n", searched)
            if end >= 0:
                break
            searched = len(self._buffer)
            if searched > most:
                raise ProtocolError("the headers of its answer are too long")
            self._more()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line[:-1] if line.endswith(b"\r") else line

    def _more(self, *, at_start: bool = False) -> None:
        data = self._receive(1 << 16)
        if not data:
            raise ProtocolError(
                "it disconnected without an answer"
                if at_start
                else "it disconnected before its answer was complete"
            )
        self._buffer += data

    def _take(self, length: int) -> Iterator[bytes]:
        """So many bytes, as they come."""
        while length:
            if not self._buffer:
                self._more()
            piece = bytes(self._buffer[:length])
            del self._buffer[:length]
            length -= len(piece)
            yield piece

    def _chunks(self) -> Iterator[bytes]:
        while True:
            digits = self._line(_LONGEST_HEAD_BYTES).partition(b";")[0].strip()
            length = _parse_size(digits)
            if not length:
                break
            yield from self._take(length)
            if self._line(2):
                raise ProtocolError("a chunk of its answer is longer than its size")
        for _ in self._lines():
            pass  # trailers, which weren't requested

    def _rest(self) -> Iterator[bytes]:
        """All until the server closes the connection."""
        while True:
            if self._buffer:
                yield bytes(self._buffer)
                self._buffer.clear()
            data = self._receive(1 << 16)
            if not data:
                return
            self._buffer += data


@lru_cache(maxsize=64)  # a server says most of them with each answer
def _parse_header(line: bytes) -> tuple[str, str]:
    raw, colon, value = line.partition(b":")
    if not colon or not _is_name(raw):
        raise ProtocolError(f"illegal header line: {_shown(line)}")
    return raw.decode().lower(), _text(value)


def _parse_length(text: str) -> int:
    found = {each.strip() for each in text.split(",")}
    (one, *others) = found
    if others or not (one.isascii() and one.isdigit()):
        raise ProtocolError(f"invalid Content-Length in its answer: {_shown(text.encode())}")
    return int(one)


def _parse_size(digits: bytes) -> int:
    # int() would take signs, underscores and a prefix as well.
    if not digits or len(digits) > _LONGEST_SIZE_DIGITS or digits.strip(b"0123456789abcdefABCDEF"):
        raise ProtocolError(f"invalid chunk size in its answer: {_shown(digits)}")
    return int(digits, 16)


@lru_cache(maxsize=64)
def _is_name(name: bytes) -> bool:
    return bool(name) and not name.translate(None, _OF_NAMES)


def _shown(said: bytes) -> str:
    return f'"{printable(said.decode("utf-8", "replace"))}"'


def _text(value: bytes) -> str:
    value = value.strip(b" \t")
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


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
        """Mark the connection as unused."""
        self._idle_since = time.monotonic()

    def is_usable(self) -> bool:
        """Tell whether one that was put aside may be used again: it hasn't been closed."""
        is_fresh = time.monotonic() - self._idle_since < _LONGEST_IDLE_SECONDS
        return is_fresh and not is_readable(self._socket.fileno(), 0)

    def half_close(self) -> None:
        """Close our half: it may still be answered."""
        shut(self._socket, socket.SHUT_WR)

    def cut(self) -> None:
        """Close the connection even while it is in use."""
        shut(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; only its user may call this."""
        self._socket.close()


def shut(connected: socket.socket, how: int) -> None:
    """Shut down a connection or one half of it, even while it is in use."""
    with contextlib.suppress(OSError):
        # Of the plain connection below: a TLS layer would first want to say goodbye.
        socket.socket.shutdown(connected, how)
