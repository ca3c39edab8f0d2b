"""Send one request, and repeat it where that is safe.

Whatever is asked may be asked again after a 401, with another token, and after a 429, when the
server says: it was not carried out. After an answer that was lost, only what may be repeated is.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn

from leasectl.engines.kubernetes.api.access import (
    Access,
    Refusal,
    addressed,
    is_ready,
    not_let_in,
)
from leasectl.engines.kubernetes.api.address import EVICTION, Deed, Json
from leasectl.engines.kubernetes.api.choice import ClusterChoice
from leasectl.engines.kubernetes.api.login import FileLogin
from leasectl.engines.kubernetes.api.refusals import (
    Busy,
    Failed,
    LostAnswer,
    NotAuthenticated,
    NotPermitted,
    parse_answer,
)
from leasectl.errors import BackendUnreachable
from leasectl.http.exchange import IdleClients
from leasectl.http.messages import Call
from leasectl.http.no_answer import NOT_IN_TIME, NoAnswer
from leasectl.system.backoff import Backoff, Pauses
from leasectl.system.clock import Clock
from leasectl.text.durations import format_seconds

_BACKOFF = Backoff(first_seconds=0.1, longest_seconds=1.0, chance=0.5)
# For so long a server that doesn't let us in, and doesn't say that it is ready, may be starting.
_STARTING_SECONDS = 5.0


class Tries:
    """The tries of one request.

    Args:
        clock: Where times come from.
        start: When it began.
        until: When it has to end.
        limit: The same, where the server is busy and says when to come again.

    Attributes:
        is_renewed: Whether something else has been shown already than at first.
        refusal: What a server that may be starting has said last; None for none.
    """

    def __init__(self, clock: Clock, start: float, until: float, limit: float) -> None:
        self._clock = clock
        self._start = start
        self._until = until
        self._limit = limit
        self._pauses = Pauses(_BACKOFF)
        self.is_renewed = False
        self.refusal: NotAuthenticated | NotPermitted | None = None
        self._reason = ""

    def left(self) -> float:
        """How long it may still take, in seconds; 0 or less when it has to end."""
        return self._until - self._clock.elapsed()

    def may_be_starting(self) -> bool:
        """Whether it is too early to believe a server that doesn't let us in and isn't ready."""
        return self._clock.elapsed() - self._start < _STARTING_SECONDS and self.left() > 0

    def pause_after_busy(self, access: Access, refusal: Busy) -> float:
        """Return the seconds to wait, which prolong the deadline up to the limit.

        Raises:
            BackendUnreachable: The server wants to be asked again after the limit.
        """
        self._reason = f"it is busy ({refusal})"
        pause = refusal.retry_after_seconds
        if pause is None:
            return self.pause()
        now = self._clock.elapsed()
        if now + pause >= self._limit:
            raise BackendUnreachable(
                f"{access.server} is busy, and is to be asked again in {format_seconds(pause)}: "
                f"{refusal}"
            )
        self._until = min(self._limit, self._until + pause)
        return pause

    def pause_after(self, reason: NoAnswer) -> float:
        """How long to wait before who didn't answer is asked again, in seconds."""
        if not self._reason or str(reason) != NOT_IN_TIME:
            self._reason = str(reason)
        said = reason.retry_after_seconds if isinstance(reason, Failed) else None
        return self.pause() if said is None else min(said, max(0.0, self.left()))

    def pause(self) -> float:
        """Return the seconds to wait before the next try if the server doesn't say."""
        return min(self._pauses.next(), max(0.0, self.left()))

    def failure(self, access: Access) -> str:
        """All of it for people, and what to do next."""
        within = format_seconds(max(0.0, self._clock.elapsed() - self._start))
        said = f": {self._reason}" if self._reason and self._reason != NOT_IN_TIME else ""
        by_way_of = f" by way of {access.proxy}" if access.proxy_url else ""
        return (
            f"no answer from {access.server}{by_way_of} within {within}{said}; is it there, and is "
            f"{access.found} the right one?"
        )


# However little time is left, an answer that takes no longer is waited for.
_LEAST_SECONDS = 3.0
# A caller without a deadline waits for so long for a server that is busy and says when to retry.
LONGEST_BUSY_SECONDS = 60.0
# The caller of this thread has set no limit, which isn't the same as None.
_UNLIMITED = -1.0
# Of a pause; in between a signal is heard of.
_PIECE_SECONDS = 1.0


class Reply(NamedTuple):
    """What was answered to a request that was carried out."""

    status: int
    said: Json
    length: int  # of its text


class _Limits(threading.local):
    """The limit that a thread has set by `Asking.limited`, on the elapsed clock."""

    until: float | None = _UNLIMITED
    least = _LEAST_SECONDS


class Asking:
    """Send requests to the server of one cluster. Threads may share it; each has a connection.

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

    def _send(self, deed: Deed, call: Call, *, is_repeatable: bool) -> Reply:
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
        tries = Tries(self._clock, start, self._until(start), self._limit(start))
        while True:
            access = self._login.current(max(tries.left(), _LEAST_SECONDS))
            seconds = min(self._attempt_seconds, tries.left())
            if seconds <= 0:
                self._give_up(access, tries, self._clock.elapsed() - start)
            try:
                return self._try(access, deed, call, seconds)
            except (NotAuthenticated, NotPermitted) as refusal:
                self._go_on(access, tries, refusal)
            except Busy as refusal:
                if deed.subresource == EVICTION:
                    raise
                self._wait(self._pause_after_busy(access, tries, refusal))
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
                self._wait(tries.pause_after(reason))

    def _wait(self, seconds: float) -> None:
        while seconds > 0:
            self._pause(min(seconds, _PIECE_SECONDS))
            seconds -= _PIECE_SECONDS

    def _try(self, access: Access, deed: Deed, call: Call, seconds: float) -> Reply:
        with self._clients.borrow(access.route, access.new_client) as client:
            answer = client.ask(addressed(access, call), seconds=seconds)
        said = parse_answer(deed, access.server, answer)
        return Reply(answer.status, said, len(answer.text))

    def _go_on(self, access: Access, tries: Tries, refusal: Refusal) -> None:
        """Not let in: find out whether another try can end otherwise.

        Raises:
            AccessRefused: It can't.
        """
        if not tries.is_renewed and not isinstance(refusal, NotPermitted):
            tries.is_renewed = True
            if self._login.renewed(access, max(tries.left(), _LEAST_SECONDS)) is not None:
                return
        if isinstance(refusal, NoAnswer) or not tries.may_be_starting():
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

    def _pause_after_busy(self, access: Access, tries: Tries, refusal: Busy) -> float:
        """How long to wait for a busy server; raises BackendUnreachable if that is too long."""
        try:
            return tries.pause_after_busy(access, refusal)
        except BackendUnreachable as error:
            seconds = min(self._rest_seconds, refusal.retry_after_seconds or 0.0)
            self._rest = (self._clock.elapsed() + seconds, str(error))
            raise

    def _give_up(self, access: Access, tries: Tries, took: float) -> NoReturn:
        if tries.refusal is not None:
            raise not_let_in(access, tries.refusal) from tries.refusal
        why = tries.failure(access)
        if took >= min(self._attempt_seconds, self._deadline_seconds):  # or others may have more
            self._rest = (self._clock.elapsed() + self._rest_seconds, why)
        raise BackendUnreachable(why)


def _lost(access: Access, deed: Deed, reason: NoAnswer) -> LostAnswer:
    return LostAnswer(
        f"{access.server}: {reason}; whether it did {deed} is unknown: check, and try again",
        status=reason.status if isinstance(reason, Failed) else 0,
        words=str(reason),
    )
