"""What is asked of a server, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leasectl.typed.tuples import NamedTuple

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
    """

    url: str
    body: bytes = b""
    headers: Mapping[str, str] = {}
    method: str = "POST"
    only_now: bool = False
    longest_silence_seconds: float | None = None
    more_headers: Sequence[tuple[str, str]] = ()
    server_name: str | None = None


def headers_of(call: Call, *, closes: bool) -> list[tuple[str, str]]:
    """All that a request says in front of its body, but for the host; its own go before the usual.

    Args:
        call: The request.
        closes: Its connection ends with it.
    """
    headers = {
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "User-Agent": "leasectl",
        "Connection": "close" if closes else "keep-alive",
    }
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
