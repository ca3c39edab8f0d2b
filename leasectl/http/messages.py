"""Requests and responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from leasectl.text.wording import printable

# Of these a server wants to be told that there is none.
_WITH_BODY = ("POST", "PUT", "PATCH")
_AS_IT_IS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-~")


class Call(NamedTuple):
    """One request.

    Args:
        url: Of what is asked for, the query included.
        body: What is sent.
        headers: Sent beside what HTTP needs.
        method: What is done with it.
        only_now: It must not be carried out later, after whoever asks may have died. Its body is
            sent when the server says that it is there: RFC 9110, 10.1.1, ``Expect: 100-continue``.
        longest_silence_seconds: For how long nothing more of the answer may come; None for ever.
        more_headers: The same, for those that come more than once.
        server_name: Whose certificate it has to be, where that isn't the host of the URL.
        goes_on: More of it may follow while the answer comes in: `Stream.send`. Not through a
            proxy, nor over TLS.
        is_terse: Without what a server can do without; etcd's gateway passes it on to itself.
    """

    url: str
    body: bytes = b""
    headers: Mapping[str, str] = {}
    method: str = "POST"
    only_now: bool = False
    longest_silence_seconds: float | None = None
    more_headers: Sequence[tuple[str, str]] = ()
    server_name: str | None = None
    goes_on: bool = False
    is_terse: bool = False

    @property
    def kept_for(self) -> tuple[str, str | None]:
        """For which requests the connection of this one is kept: to that server under that name."""
        return server_of(self.url), self.server_name


@lru_cache(maxsize=64)
def server_of(url: str) -> str:
    """A URL up to its path."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def headers_of(call: Call, *, closes: bool) -> list[tuple[str, str]]:
    """All that a request says in front of its body, but for the host; its own go before the usual.

    Args:
        call: The request.
        closes: Its connection ends with it.
    """
    headers = {}
    if not call.is_terse:
        headers = {
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            "User-Agent": "leasectl",
            "Connection": "keep-alive",
        }
    if closes:
        headers["Connection"] = "close"
    if call.goes_on:
        headers["Transfer-Encoding"] = "chunked"
    elif call.body or call.method in _WITH_BODY:
        headers["Content-Length"] = str(len(call.body))
    if call.only_now:
        headers["Expect"] = "100-continue"
    headers.update(call.headers)
    return [*headers.items(), *call.more_headers]


def encode_query(parts: Mapping[str, str]) -> str:
    """Write the query of a URL, as `urllib.parse.urlencode` does, which takes long to load."""
    return "&".join(f"{_escaped(name)}={_escaped(value)}" for name, value in parts.items())


def _escaped(text: str) -> str:
    return "".join(
        chr(each) if each in _AS_IT_IS else "+" if each == ord(" ") else f"%{each:02X}"
        for each in text.encode()
    )


class Answer(NamedTuple):
    """What a server answered. ``headers`` have lower-case names."""

    status: int
    text: str
    headers: Mapping[str, str] = {}


def redirection(answer: Answer) -> str:
    """Where an answer sends whoever asked, for people; empty where it doesn't.

    Nobody goes there: what was asked may have been done here. What its query has in it, or in
    front of a host, may be a secret.
    """
    if not 300 <= answer.status < 400:
        return ""
    scheme, slashes, rest = answer.headers.get("location", "").partition("?")[0].partition("//")
    host, slash, path = rest.partition("/")
    shown = f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}"
    there = printable(shown, longest=120)
    return there and f"it redirects to {there}, which isn't followed"


class Incoming(NamedTuple):
    """An answer while it comes in: its head is there, its body follows in pieces."""

    status: int
    headers: Mapping[str, str]
    chunks: Iterator[bytes]
