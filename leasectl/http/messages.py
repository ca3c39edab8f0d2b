"""What is asked of a server, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


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


class Answer(NamedTuple):
    """What a server answered. ``headers`` have lower-case names."""

    status: int
    text: str
    headers: Mapping[str, str] = {}
