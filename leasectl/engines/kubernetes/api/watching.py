"""Watches: follow what happens to objects.

It ends in many ways, and all mean the same: list again, and watch from there. The server ends it
after half an hour, or when it is stopped; a killed one looks as if it had; one that hangs says
nothing, not even the bookmark that comes each minute; and of what is too old it only says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Literal, NamedTuple, cast, get_args

from leasectl.engines.kubernetes.api.address import Deed, Json
from leasectl.engines.kubernetes.api.login import (
    Access,
    FileLogin,
    addressed,
    not_let_in,
)
from leasectl.engines.kubernetes.api.refusals import (
    Busy,
    Expired,
    NotAuthenticated,
    NotPermitted,
    Refused,
    read_object,
    refusal,
    watch_error,
)
from leasectl.http.exchange import CuttableStream, Stream
from leasectl.http.messages import Answer, Call
from leasectl.http.no_answer import NoAnswer, WatchEnded
from leasectl.text.wording import printable

# A bookmark comes each minute, when nothing else does.
LONGEST_SILENCE_SECONDS = 75.0
_MOST_LINES = 100

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
_TYPES = get_args(EventType)


class WatchEvent(NamedTuple):
    """What happened.

    Args:
        type: A ``BOOKMARK`` says that nothing else did up to its object's resourceVersion.
        object: As it is after that, or was before it was deleted; of a bookmark, only its kind and
            ``metadata.resourceVersion``.
    """

    type: EventType
    object: Json

    @property
    def resource_version(self) -> str:
        """From where another watch would go on."""
        metadata = self.object.get("metadata")
        return str(metadata.get("resourceVersion", "")) if isinstance(metadata, dict) else ""


class WatchExpired(WatchEnded):
    """What it was to begin with is too old (410), which also a healthy server says."""


class Watch(CuttableStream):
    """A watch: a context manager that yields its events.

    Args:
        login: Whose API, and as whom.
        deed: What is watched, for messages.
        path: The same as a path, its query included.
        seconds: How long it may take to find out as whom.
    """

    def __init__(
        self,
        login: FileLogin,
        deed: Deed,
        path: str,
        *,
        seconds: float,
    ) -> None:
        super().__init__()
        self._login = login
        self._deed = deed
        self._call = Call(
            path,
            headers={"Accept": "application/json"},
            method="GET",
            longest_silence_seconds=LONGEST_SILENCE_SECONDS,
        )
        self._seconds = seconds
        self._server = ""

    def __enter__(self) -> Iterator[WatchEvent]:
        """Begin it, and wait for the server to say that it has begun.

        The events are iterated over by one thread, which waits for the next; that ends as
        `WatchEnded` says, never by itself.

        Raises:
            WatchEnded: It hasn't begun; or, inside, it has ended. Also when it is `cut`.
            WatchExpired: Because of a resourceVersion that is too old.
            AccessRefused: The server doesn't know us, we may not, or TLS is refused.
            LeaseError: It doesn't take what was asked.
        """
        access = self._login.current(self._seconds)
        try:
            return self._begun(access)
        except NotPermitted as refusal:
            raise not_let_in(access, refusal) from refusal
        except (NotAuthenticated, NoAnswer) as first:
            other = self._login.renewed(access, self._seconds)
            if other is None:
                raise not_let_in(access, first) from first
            try:
                return self._begun(other)
            except (NotAuthenticated, NotPermitted, NoAnswer) as again:
                raise not_let_in(other, again) from again

    def _begun(self, access: Access) -> Iterator[WatchEvent]:
        """Begin it.

        Raises:
            NotAuthenticated, NotPermitted: The server doesn't know us, or we may not.
            NoAnswer: One of both sides doesn't trust the other.
            WatchEnded, AccessRefused, LeaseError: As `__enter__`.
        """
        self._server = access.server
        client = access.new_client()
        stream = client.stream(addressed(access, self._call))
        self._note(client, stream)
        try:
            lines = stream.__enter__()
        except NoAnswer as reason:
            with self._lock:
                self._stream = None
            if reason.distrust:
                raise
            raise WatchEnded(f"{access.server}: {reason}") from reason
        if stream.status == 200:
            return self._events(lines)
        try:
            raise self._refusal(stream, lines)
        finally:
            self.__exit__(None, None, None)

    def _refusal(self, stream: Stream, lines: Iterator[str]) -> Exception:
        """Why it hasn't begun."""
        try:
            text = "\n".join(islice(lines, _MOST_LINES))
        except NoAnswer as reason:
            return WatchEnded(f"{self._server}: {reason}")
        answer = Answer(stream.status, text, stream.headers)
        return _ended(refusal(self._deed, self._server, answer))

    def _events(self, lines: Iterator[str]) -> Iterator[WatchEvent]:
        try:
            for line in lines:
                if line:
                    yield self._event(line)
        except NoAnswer as reason:
            raise WatchEnded(f"{self._server}: {reason}") from reason
        raise WatchEnded(f"{self._server} has ended the watch")

    def _event(self, line: str) -> WatchEvent:
        said = read_object(line) or {}
        happened, of = said.get("type"), said.get("object")
        if isinstance(of, dict) and happened in _TYPES:
            return WatchEvent(cast(EventType, happened), of)
        if isinstance(of, dict) and happened == "ERROR":
            error = _ended(watch_error(self._deed, self._server, of))
            raise WatchEnded(str(error)) if isinstance(error, Refused) else error
        raise WatchEnded(f"{self._server}: the answer is not an event ({printable(line)})")


def _ended(error: Exception) -> Exception:
    """What callers act upon in the same way is the same."""
    if isinstance(error, (NotAuthenticated, NotPermitted)):
        return error
    if isinstance(error, Expired):
        return WatchExpired(str(error))
    if isinstance(error, Busy):
        return WatchEnded(str(error), retry_after_seconds=error.retry_after_seconds)
    if isinstance(error, (Refused, NoAnswer)):
        return WatchEnded(str(error))
    return error
