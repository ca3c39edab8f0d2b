"""The operations of the API, each within a deadline.

Reads are repeated until they are answered. A write is repeated if the caller says that this is
safe, or if it can't have been carried out: nothing was sent, or the server says that it was too
busy. Any other write whose answer is lost ends with `LostAnswer`, and its caller reads back. After
a 401, any request is sent again with another token.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from leasectl.engines.kubernetes.api.address import EVICTION, Collection, Deed, Json
from leasectl.engines.kubernetes.api.choice import ClusterChoice
from leasectl.engines.kubernetes.api.login import (
    Access,
    FileLogin,
    Refusal,
    addressed,
    is_ready,
    not_let_in,
)
from leasectl.engines.kubernetes.api.refusals import (
    Busy,
    Expired,
    Failed,
    LostAnswer,
    NotAuthenticated,
    NotPermitted,
    parse_answer,
)
from leasectl.errors import BackendUnreachable
from leasectl.http.exchange import IdleClients
from leasectl.http.messages import Call, encode_query
from leasectl.http.no_answer import NOT_IN_TIME, NoAnswer
from leasectl.system.backoff import Backoff, Pauses
from leasectl.system.clock import Clock
from leasectl.text.durations import format_seconds

if TYPE_CHECKING:
    from leasectl.engines.kubernetes.api.watching import Watch

_JSON = "application/json"
_MERGE_PATCH = "application/merge-patch+json"
_PAGE = 500
# Of a whole list: 100,000 leases have some 150 MB. Decoded, they take several times as much memory.
_LONGEST_LIST = 256 << 20
_LIST_SECONDS = 120.0
# A list of several pages is one as it was at one time, which the server forgets after minutes.
_MOST_LISTS = 3
_BACKOFF = Backoff(first_seconds=0.1, longest_seconds=1.0, chance=0.5)
# For so long a server that doesn't let us in, and doesn't say that it is ready, may be starting.
_STARTING_SECONDS = 5.0
# However little time is left, an answer that takes no longer is waited for.
_LEAST_SECONDS = 3.0
# A caller without a deadline waits for so long for a server that is busy and says when to retry.
LONGEST_BUSY_SECONDS = 60.0
# The caller of this thread has set no limit, which isn't the same as None.
_UNLIMITED = -1.0
# Of a pause; in between a signal is heard of.
_PIECE_SECONDS = 1.0


class Listed(NamedTuple):
    """All objects that were asked for, as they were at one time.

    Args:
        items: Them, sorted by name; without the kind that each would have by itself.
        resource_version: That time: where a watch goes on from, and later than all before.
    """

    items: tuple[Json, ...]
    resource_version: str


class _Reply(NamedTuple):
    """The object that answers a request, and the length of its text."""

    said: Json
    length: int


class _Limits(threading.local):
    """The limit that a thread has set by `Api.limited`, on the elapsed clock."""

    until: float | None = _UNLIMITED
    least = _LEAST_SECONDS


class _Tries:
    """The tries of one request.

    Args:
        clock: Where times come from.
        start: When it began.
        until: When it has to end.
        limit: The same, if the server is busy and says when to retry.

    Attributes:
        start, until, limit: As given; waiting for a busy server moves ``until`` up to the limit.
        is_renewed: Other credentials than the first were tried.
        refusal: What a server that may be starting has said last; None for none.
        reason: Why there was no answer, for people.
    """

    def __init__(self, clock: Clock, start: float, until: float, limit: float) -> None:
        self._clock = clock
        self._pauses = Pauses(_BACKOFF)
        self.start = start
        self.until = until
        self.limit = limit
        self.is_renewed = False
        self.refusal: NotAuthenticated | NotPermitted | None = None
        self.reason = ""

    def left(self) -> float:
        """Return how long it may still take, in seconds; 0 or less if it has to end."""
        return self.until - self._clock.elapsed()

    def pause(self) -> float:
        """Return the seconds to wait before the next try if the server doesn't say."""
        return min(self._pauses.next(), max(0.0, self.left()))


class Api:
    """The API of one cluster, as one user. Threads may share it; each has a connection.

    Nothing is asked, and no file is read, before the first request.

    Args:
        choice: The cluster and the user.
        clock: Where times come from.
        deadline_seconds: How long a request may take, all its repetitions included.
        attempt_seconds: How long one try may take; then it is repeated on a new connection.
        busy_seconds: How long a request may take while the server is busy and says when to retry;
            None for the deadline. Inside `limited`, that limit counts.
        rest_seconds: After a timeout, or while the server is busy, all requests fail at once for
            so long: for a process in which many would wait for the server, one after the other.
        pause: Called with seconds between two tries.

    All raise, beside what they name:

    - `AccessRefused`: the server doesn't know us (401), we may not (403), a file or program that
      says who we are can't be used, TLS is refused, there is no such namespace; with the exit code
      of that;
    - `BackendUnreachable`: no answer before the deadline, or none that could come;
    - `Unanswered`, as ``pause`` raises it.

    Writes also:

    - `LostAnswer`, a `BackendUnreachable`: it may have been carried out;
    - `InvalidRequest`: the server doesn't take it (413, 422);
    - `CorruptState`: it doesn't understand it (400).
    """

    def __init__(
        self,
        choice: ClusterChoice,
        *,
        clock: Clock,
        deadline_seconds: float = 10.0,
        attempt_seconds: float = 4.0,
        busy_seconds: float | None = None,
        rest_seconds: float = 0.0,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._login = FileLogin(choice, clock=clock)
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._attempt_seconds = attempt_seconds
        self._busy_seconds = deadline_seconds if busy_seconds is None else busy_seconds
        self._rest_seconds = rest_seconds
        self._rest = (0.0, "")  # until when on the elapsed clock, and why
        self._pause = pause
        self._limits = _Limits()
        self._clients = IdleClients()

    def close(self) -> None:
        """End all connections: unused ones now, the others when they become unused."""
        self._clients.close()

    @contextlib.contextmanager
    def limited(self, until: float | None, *, is_strict: bool = False) -> Iterator[None]:
        """Wait not much longer than until a time for the requests of this thread inside.

        Args:
            until: The time on the elapsed clock; None if the caller has no deadline: then a busy
                server is waited for longer, for up to `LONGEST_BUSY_SECONDS`.
            is_strict: Wait no longer at all, however little time is left.
        """
        limits = self._limits
        before = limits.until, limits.least
        limits.until, limits.least = until, 0.0 if is_strict else _LEAST_SECONDS
        try:
            yield
        finally:
            limits.until, limits.least = before

    def access(self) -> Access:
        """Return the server and the user; nothing is asked of the server.

        Raises:
            AccessRefused: A file that says so can't be used.
        """
        return self._login.current(self._deadline_seconds)

    # What is done with objects

    def get(self, collection: Collection, name: str) -> Json:
        """One object, as it is now: a consistent read.

        Raises:
            Absent: There is none of that name.
        """
        return self._ask(Deed("get", collection, name), "GET", is_repeatable=True).said

    def list(self, collection: Collection, *, labels: str = "", fields: str = "") -> Listed:
        """All objects, or those that selectors select, as they are now: a consistent read, paged.

        Args:
            collection: Of which.
            labels: A label selector, like ``a=b,c``.
            fields: A field selector, like ``metadata.name=a``.
        """
        for _ in range(_MOST_LISTS):
            with contextlib.suppress(Expired):
                return self._list(collection, labels, fields)
        raise BackendUnreachable(
            f"{Deed('list', collection)}: the list changes while it is read; try again"
        )

    def create(
        self,
        collection: Collection,
        body: Json,
        *,
        name: str = "",
        subresource: str = "",
        is_repeatable: bool = False,
    ) -> Json:
        """Make an object, or what belongs to one, like an eviction; returns it as it was made.

        Args:
            collection: Where.
            body: It; ``metadata.name`` says what it is called.
            name: Whose, where it is of a subresource.
            subresource: Of which, like ``eviction``.
            is_repeatable: It may be carried out more than once.

        Raises:
            AlreadyExists: There is one of that name; a try before may have made it, where it is
                repeatable.
            Busy: An eviction may not be now, most often by a PodDisruptionBudget.
            Absent: What it is to belong to isn't there.
            Conflict: Or is another.
        """
        deed = Deed("create", collection, name, subresource)
        return self._ask(deed, "POST", body, is_repeatable=is_repeatable).said

    def check_creation(self, collection: Collection, name: str) -> None:
        """Ask whether an object could be made; none is.

        Raises:
            AlreadyExists: There is one of that name.
            CorruptState: An admission webhook there doesn't support dry runs.
        """
        deed, body = Deed("create", collection), {"metadata": {"name": name}}
        self._ask(deed, "POST", body, is_repeatable=True, query={"dryRun": "All"})

    def replace(
        self, collection: Collection, name: str, body: Json, *, is_repeatable: bool = False
    ) -> Json:
        """Write an object that is there, as long as it is the one that was read; returns it.

        Args:
            collection: Where.
            name: Of the object.
            body: All of it, with the uid and the resourceVersion that were read: from one without
                a uid, a server makes an object that isn't there, which would bring a lease back.
            is_repeatable: It may be tried again although a try before may have been carried out;
                then that is the `Conflict`.

        Raises:
            Conflict: It is another by now, or has been changed.
            Absent: It isn't there.
            ValueError: ``body`` has no uid or resourceVersion.
        """
        metadata = body.get("metadata") or {}
        if not metadata.get("uid") or not metadata.get("resourceVersion"):
            raise ValueError("a PUT without uid and resourceVersion could bring back what is gone")
        deed = Deed("update", collection, name)
        return self._ask(deed, "PUT", body, is_repeatable=is_repeatable).said

    def patch(
        self, collection: Collection, name: str, body: Json, *, is_repeatable: bool = False
    ) -> Json:
        """Merge into an object that is there (RFC 7396); returns it.

        Args:
            collection, name, is_repeatable: As for `replace`.
            body: What is to be other than it is; with the resourceVersion that was read, if only
                that may be changed.

        Raises:
            Conflict, Absent: As `replace`.
        """
        deed = Deed("patch", collection, name)
        reply = self._ask(
            deed, "PATCH", body, is_repeatable=is_repeatable, content_type=_MERGE_PATCH
        )
        return reply.said

    def delete(
        self,
        collection: Collection,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        is_repeatable: bool = False,
    ) -> Json:
        """Take an object away, if it is the one that was meant.

        Args:
            collection, name: Of the object.
            uid: The uid that it has to have; None for any.
            resource_version: The resourceVersion that it has to have; None for any.
            is_repeatable: As for `replace`; a try before may be why it is `Absent`.

        Raises:
            Conflict: It is another, or has been changed.
            Absent: It isn't there.
        """
        wanted = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {key: value for key, value in wanted.items() if value is not None}
        body: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions:
            body["preconditions"] = preconditions
        deed = Deed("delete", collection, name)
        return self._ask(deed, "DELETE", body, is_repeatable=is_repeatable).said

    def watch(
        self,
        collection: Collection,
        *,
        resource_version: str,
        name: str = "",
        labels: str = "",
    ) -> Watch:
        """What happens to objects from some time on; nothing is asked before it is entered.

        Args:
            collection: Of which.
            resource_version: After which: that of a list, or of an event of a watch before.
            name: The only one; empty for all.
            labels: A label selector; empty for all.

        Returns:
            A context manager that yields the events; any thread can `cut` it.
        """
        from leasectl.engines.kubernetes.api.watching import Watch

        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            **_selectors(labels, f"metadata.name={name}" if name else ""),
        }
        deed = Deed("watch", collection, name)
        path = f"{collection.path()}?{encode_query(query)}"
        return Watch(self._login, deed, path, seconds=self._deadline_seconds)

    def ask(self, deed: Deed, method: str, body: Json | None = None) -> Json:
        """Anything else, that may be repeated: what an API server says of us, or of itself."""
        return self._ask(deed, method, body, is_repeatable=True).said

    # How

    def _list(self, collection: Collection, labels: str, fields: str) -> Listed:
        items: list[Json] = []
        query = {"limit": str(_PAGE), **_selectors(labels, fields)}
        deed = Deed("list", collection)
        until, length = self._clock.elapsed() + _LIST_SECONDS, 0
        while True:
            reply = self._ask(deed, "GET", query=query, is_repeatable=True)
            said, length = reply.said, length + reply.length
            found, metadata = said.get("items") or [], said.get("metadata")
            if not _are_objects(found) or not isinstance(metadata, dict):
                raise BackendUnreachable(f"{deed}: the answer is not a list; is it an API server?")
            items += found
            if not metadata.get("continue"):
                return Listed(tuple(items), str(metadata.get("resourceVersion", "")))
            if length > _LONGEST_LIST:
                raise BackendUnreachable(
                    f"{deed}: the list is longer than {_LONGEST_LIST >> 20} MiB"
                )
            if self._clock.elapsed() > until:
                raise BackendUnreachable(f"{deed}: the list took longer than {_LIST_SECONDS:g} s")
            query = {**query, "continue": str(metadata["continue"])}

    def _ask(
        self,
        deed: Deed,
        method: str,
        body: Json | None = None,
        *,
        is_repeatable: bool,
        query: Mapping[str, str] | None = None,
        content_type: str = _JSON,
    ) -> _Reply:
        path = deed.path + (f"?{encode_query(query)}" if query else "")
        content, headers = b"", {"Accept": _JSON}
        if body is not None:
            content, headers["Content-Type"] = json.dumps(body).encode(), content_type
        call = Call(path, content, headers, method)
        return self._send(deed, call, is_repeatable=is_repeatable)

    def _send(self, deed: Deed, call: Call, *, is_repeatable: bool) -> _Reply:
        """Send a request until it is answered.

        Args:
            deed: What is to be done.
            call: The request; its URL begins at the path.
            is_repeatable: It may be carried out more than once.

        Raises:
            Absent, Conflict, AlreadyExists, Expired, InvalidRequest, CorruptState: As
                `parse_answer`.
            Busy: The server puts an eviction off, for an unknown time.
            LostAnswer: It may have been carried out, and isn't repeatable.
            BackendUnreachable, AccessRefused: As `Api` has them.
        """
        start = self._clock.elapsed()
        rests_until, why = self._rest
        if start < rests_until:
            raise BackendUnreachable(why)
        tries = _Tries(self._clock, start, self._until(start), self._limit(start))
        while True:
            access = self._login.current(max(tries.left(), _LEAST_SECONDS))
            seconds = min(self._attempt_seconds, tries.left())
            if seconds <= 0:
                self._give_up(access, tries)
            try:
                return self._try(access, deed, call, seconds)
            except (NotAuthenticated, NotPermitted) as refusal:
                self._go_on(access, tries, refusal)
            except Busy as refusal:
                if deed.subresource == EVICTION:
                    raise
                self._wait_while_busy(access, tries, refusal)
            except NoAnswer as reason:
                if reason.distrust:
                    self._go_on(access, tries, reason)
                    continue
                if reason.sent and not is_repeatable:
                    raise _lost(access, deed, reason) from reason
                if reason.lasting:
                    error = BackendUnreachable(f"{access.server}: {reason}")
                    error.lasting = True
                    raise error from reason
                if not tries.reason or str(reason) != NOT_IN_TIME:
                    tries.reason = str(reason)
                said = reason.retry_after_seconds if isinstance(reason, Failed) else None
                self._wait(tries.pause() if said is None else min(said, max(0.0, tries.left())))

    def _wait(self, seconds: float) -> None:
        while seconds > 0:
            self._pause(min(seconds, _PIECE_SECONDS))
            seconds -= _PIECE_SECONDS

    def _try(self, access: Access, deed: Deed, call: Call, seconds: float) -> _Reply:
        with self._clients.borrow(access.route, access.new_client) as client:
            answer = client.ask(addressed(access, call), seconds=seconds)
        said = parse_answer(deed, access.server, answer)
        return _Reply(said, len(answer.text))

    def _go_on(self, access: Access, tries: _Tries, refusal: Refusal) -> None:
        """Not let in: find out whether another try can end otherwise.

        Raises:
            AccessRefused: It can't.
        """
        if not tries.is_renewed and not isinstance(refusal, NotPermitted):
            tries.is_renewed = True
            if self._login.renewed(access, max(tries.left(), _LEAST_SECONDS)) is not None:
                return
        is_early = self._clock.elapsed() - tries.start < _STARTING_SECONDS and tries.left() > 0
        if isinstance(refusal, NoAnswer) or not is_early:
            raise not_let_in(access, refusal) from refusal
        with self._clients.borrow(access.route, access.new_client) as client:
            seconds = min(self._attempt_seconds, tries.left())
            unknown = isinstance(refusal, NotAuthenticated)
            if is_ready(access, client, seconds, as_nobody=unknown):
                raise not_let_in(access, refusal) from refusal
        tries.refusal = refusal
        self._wait(tries.pause())

    def _until(self, start: float) -> float:
        """When a request that begins now has to end."""
        limit = self._limits.until
        deadline = start + self._deadline_seconds
        if limit is None or limit == _UNLIMITED:
            return deadline
        return min(deadline, max(limit, start + self._limits.least))

    def _limit(self, start: float) -> float:
        """When it has to end, where the server is busy and says when to retry."""
        limit = self._limits.until
        if limit is None:  # the caller waits for as long as it takes
            return start + LONGEST_BUSY_SECONDS
        return start + self._busy_seconds if limit == _UNLIMITED else self._until(start)

    def _wait_while_busy(self, access: Access, tries: _Tries, refusal: Busy) -> None:
        """Wait until the server is to be asked again.

        Raises:
            BackendUnreachable: That is after the limit.
        """
        tries.reason = f"it is busy ({refusal})"
        pause, now = refusal.retry_after_seconds, self._clock.elapsed()
        if pause is None:
            self._wait(tries.pause())
        elif now + pause < tries.limit:
            tries.until = min(tries.limit, tries.until + pause)
            self._wait(pause)
        else:
            why = (
                f"{access.server} is busy, and asks to try again in {format_seconds(pause)}: "
                f"{refusal}"
            )
            self._rest = (now + min(self._rest_seconds, pause), why)
            raise BackendUnreachable(why)

    def _give_up(self, access: Access, tries: _Tries) -> NoReturn:
        if tries.refusal is not None:
            raise not_let_in(access, tries.refusal) from tries.refusal
        took = max(0.0, self._clock.elapsed() - tries.start)
        said = f": {tries.reason}" if tries.reason not in ("", NOT_IN_TIME) else ""
        by_way_of = f" by way of {access.proxy}" if access.proxy_url else ""
        why = (
            f"no answer from {access.server}{by_way_of} within {format_seconds(took)}{said}; is "
            f"the server up, and is {access.found} right?"
        )
        if took >= min(self._attempt_seconds, self._deadline_seconds):  # or others may have more
            self._rest = (self._clock.elapsed() + self._rest_seconds, why)
        raise BackendUnreachable(why)


def _are_objects(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(each, dict) for each in found)


def _selectors(labels: str, fields: str) -> dict[str, str]:
    given = {"labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in given.items() if value}


def _lost(access: Access, deed: Deed, reason: NoAnswer) -> LostAnswer:
    return LostAnswer(
        f"{access.server}: {reason}; whether it did {deed} is unknown: check, and try again",
        status=reason.status if isinstance(reason, Failed) else 0,
        words=str(reason),
    )
