"""HTTP/1.1 as bytes: requests out of what a client sent, answers into what it gets.

No I/O and no library's HTTP: a server whose answers are to be broken has to make them itself.
What is accepted, and the texts of refusals, are those of Go's net/http, which the lease proxy uses.
"""

from __future__ import annotations

import email.utils
import http
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

_MAX_HEAD_BYTES = 1 << 20


class BadRequest(Exception):
    """What a client sent is no HTTP request."""


class Request(NamedTuple):
    """A whole request.

    Args:
        method: As sent.
        target: As sent; a client that took the server for a proxy sends a whole URL.
        version: ``HTTP/1.1`` or ``HTTP/1.0``.
        headers: By their names in lower case; the first of each.
        body: Without its transfer encoding.
    """

    method: str
    target: str
    version: str
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    def query(self, name: str) -> str:
        """The first value of a query parameter; empty when there is none."""
        values = parse_qs(urlsplit(self.target).query, keep_blank_values=True)
        return values.get(name, [""])[0]

    @property
    def keeps_alive(self) -> bool:
        wish = self.headers.get("connection", "").lower()
        return "keep-alive" in wish if self.version == "HTTP/1.0" else "close" not in wish


class Answer(NamedTuple):
    """What a request is answered with; 204 has no body."""

    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()

    def encode(self, *, close: bool = False) -> bytes:
        """The bytes to send; with ``close`` they say that the connection ends with them."""
        lines = [f"HTTP/1.1 {self.status} {_reason(self.status)}"]
        if self.status != 204:
            lines.append(f"Content-Type: {self.content_type}")
        lines += [f"{name}: {value}" for name, value in self.headers]
        lines.append(f"Date: {email.utils.formatdate(usegmt=True)}")
        if self.status != 204:
            lines.append(f"Content-Length: {len(self.body)}")
        if close:
            lines.append("Connection: close")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


class Head(NamedTuple):
    """The part of a request before its body, and where in the buffer the body begins."""

    request: Request
    size: int

    @property
    def expects_continue(self) -> bool:
        return self.request.headers.get("expect", "").lower() == "100-continue"


def parse_head(buffer: bytes) -> Head | None:
    """Read a request's head from the beginning of a buffer; None while it isn't complete.

    Raises:
        BadRequest: It will never be one.
    """
    # Go's server forgives the empty line that old clients send after a body.
    start = len(buffer) - len(buffer.lstrip(b"\r\n"))
    end = buffer.find(b"\r\n\r\n", start)
    if end < 0:
        if len(buffer) > _MAX_HEAD_BYTES:
            raise BadRequest("the head is too long")
        return None
    first, *rest = buffer[start:end].decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadRequest(f"not a request line: {first[:100]!r}")
    headers: dict[str, str] = {}
    for line in rest:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequest(f"not a header: {line[:100]!r}")
        headers.setdefault(name.lower(), value.strip())
    if words[2] == "HTTP/1.1" and "host" not in headers:
        raise BadRequest("missing required Host header")
    return Head(Request(words[0], words[1], words[2], headers), end + 4)


def parse_answer(data: bytes) -> Answer:
    """Read an answer that a server ended the connection after.

    Raises:
        BadRequest: It isn't HTTP, or not whole.
    """
    end = data.find(b"\r\n\r\n")
    if end < 0:
        raise BadRequest(f"no answer: {data[:100]!r}")
    first, *rest = data[:end].decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
        raise BadRequest(f"not a status line: {first[:100]!r}")
    fields = [line.partition(":") for line in rest]
    headers = {name.lower(): value.strip() for name, _, value in fields}
    headers.setdefault("content-length", str(len(data) - end - 4))
    found = parse_body(Head(Request("", "", words[0], headers), end + 4), data)
    if found is None:
        raise BadRequest("the answer ends too soon")
    key = headers.get("idempotency-key")
    return Answer(
        status=int(words[1]),
        body=found[0],
        content_type=headers.get("content-type", ""),
        headers=() if key is None else (("Idempotency-Key", key),),
    )


def parse_body(head: Head, buffer: bytes) -> tuple[bytes, int] | None:
    """Read a request's body from the buffer that its head was read from.

    Returns:
        The body and how much of the buffer the request takes up; None while it isn't complete.

    Raises:
        BadRequest: Its length is no length.
    """
    if head.request.headers.get("transfer-encoding", "").lower() == "chunked":
        return _parse_chunks(buffer, head.size)
    length = head.request.headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise BadRequest(f"bad Content-Length {length!r}")
    end = head.size + int(length)
    return (buffer[head.size : end], end) if len(buffer) >= end else None


def _parse_chunks(buffer: bytes, start: int) -> tuple[bytes, int] | None:
    body = b""
    while True:
        line_end = buffer.find(b"\r\n", start)
        if line_end < 0:
            return None
        try:
            size = int(buffer[start:line_end].partition(b";")[0], 16)
        except ValueError:
            raise BadRequest("malformed chunked encoding") from None
        start = line_end + 2
        if len(buffer) < start + size + 2:
            return None
        body += buffer[start : start + size]
        start += size + 2
        if size == 0:
            return body, start


def _reason(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "Unassigned"
