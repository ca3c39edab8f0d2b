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
        url: What is requested, the query included.
        body: What is sent.
        headers: Sent beside those that HTTP needs.
        method: Of HTTP.
        only_now: It must not be carried out later, after this process may have died. Its body is
            sent when the server says that it is there: RFC 9110, 10.1.1, ``Expect: 100-continue``.
        longest_silence_seconds: How long nothing more of the answer may come; None for ever.
        more_headers: Further headers, for those that occur more than once.
        server_name: The name in the server's certificate, if it isn't the host of the URL.
        is_terse: Without optional headers; etcd's gateway passes headers on to itself.
    """

    url: str
    body: bytes = b""
    headers: Mapping[str, str] = {}
    method: str = "POST"
    only_now: bool = False
    longest_silence_seconds: float | None = None
    more_headers: Sequence[tuple[str, str]] = ()
    server_name: str | None = None
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
    if call.body or call.method in _WITH_BODY:
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
    """Return where an answer redirects to, for people; empty if it doesn't.

    No redirection is followed: the request may have been carried out here. The query, or the text
    before the host, may hold a secret, so it is left out.
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
