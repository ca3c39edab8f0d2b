"""One request and its repetitions, until the server answers or the time is over.

Whatever is asked may be asked again after a 401, with another token, and after a 429, when the
server says: it was not carried out. After an answer that was lost, only what may be repeated is.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Callable, NamedTuple, NoReturn

from leasectl.engines.kubernetes.api.access import Access, Login
from leasectl.engines.kubernetes.api.collection import Deed, Json
from leasectl.engines.kubernetes.api.refusals import (
    Busy,
    Failed,
    LostAnswer,
    NotAuthenticated,
    parse_answer,
)
from leasectl.errors import (
    AccessRefused,
    BackendUnreachable,
    CorruptState,
    InvalidRequest,
    NotAllowed,
)
from leasectl.http.exchange import Client
from leasectl.http.messages import Call
from leasectl.http.no_answer import NOT_IN_TIME, NoAnswer
from leasectl.system.backoff import Backoff, Pauses
from leasectl.system.clock import Clock
from leasectl.text.durations import format_seconds

_BACKOFF = Backoff(first_seconds=0.1, longest_seconds=1.0, chance=0.5)
# However little time is left, an answer that takes no longer is waited for.
_LEAST_SECONDS = 3.0
# A server that says when to come again is there: so long it is waited for, where nobody says less.
_LONGEST_BUSY_SECONDS = 60.0


class Reply(NamedTuple):
    """What was answered to a request that was carried out."""

    status: int
    said: Json


class Asking:
    """Asks the server of one cluster. Threads may share it, and have a connection each.

    Args:
        login: Whose server, and as whom.
        clock: Where times come from.
        deadline_seconds: How long a request may take, all its repetitions included.
        attempt_seconds: How long one of them may; then it is made anew, on a new connection.
        rest_seconds: For how long nobody is asked again when nobody has answered in time.
        pause: Called with seconds between two tries.
    """

    def __init__(
        self,
        login: Login,
        *,
        clock: Clock,
        deadline_seconds: float,
        attempt_seconds: float,
        rest_seconds: float,
        pause: Callable[[float], object],
    ) -> None:
        self.login = login
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._attempt_seconds = attempt_seconds
        self._rest_seconds = rest_seconds
        self._rest = (0.0, "")  # until when on the elapsed clock, and why
        self._pause = pause
        self._limits = threading.local()  # `until`: see `limited`
        self._lock = threading.Lock()
        # Under the lock, which nobody holds while waiting for the server:
        self._idle: list[tuple[Access, Client]] = []  # those that nobody uses

    def close(self) -> None:
        """End all connections that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, client in idle:
            client.close()

    @contextlib.contextmanager
    def limited(self, until: float | None) -> Iterator[None]:
        """As `Api.limited`."""
        before = getattr(self._limits, "until", None)
        self._limits.until = until
        try:
            yield
        finally:
            self._limits.until = before

    def ask(self, deed: Deed, call: Call, *, is_repeatable: bool) -> Reply:
        """Ask until it is answered.

        Args:
            deed: What is to be done.
            call: The request; its URL begins at the path.
            is_repeatable: It may be carried out more than once.

        Raises:
            Absent, Conflict, AlreadyExists, Expired: As `parse_answer`.
            InvalidRequest, CorruptState: Likewise.
            Busy: Of a PodDisruptionBudget.
            LostAnswer: It may have been carried out, and isn't repeatable.
            BackendUnreachable, AccessRefused: As `Api` has them.
        """
        start = self._clock.elapsed()
        rests_until, why = self._rest
        if start < rests_until:
            raise BackendUnreachable(why)
        tries = _Tries(self._clock, start, self._until(start), self._limit(start))
        while True:
            access = current_access(self.login, tries.left())
            seconds = min(self._attempt_seconds, tries.left())
            if seconds <= 0:
                self._give_up(access, tries)
            try:
                return self._try(access, deed, call, seconds)
            except NotAuthenticated as refusal:
                tries.renew(self.login, access, refusal)
            except Busy as refusal:
                if refusal.is_budget:
                    raise
                self._pause(tries.pause_after_busy(access, refusal))
            except NoAnswer as reason:
                if reason.distrust:
                    tries.renew(self.login, access, reason)
                    continue
                if reason.sent and not is_repeatable:
                    raise _lost(access, deed, reason) from reason
                if reason.lasting:
                    raise BackendUnreachable(f"{access.server}: {reason}") from reason
                self._pause(tries.pause_after(reason))

    def _try(self, access: Access, deed: Deed, call: Call, seconds: float) -> Reply:
        with self._client(access) as client:
            answer = client.ask(addressed(access, call), seconds=seconds)
        return Reply(answer.status, parse_answer(deed, access.server, answer))

    @contextlib.contextmanager
    def _client(self, access: Access) -> Iterator[Client]:
        with self._lock:
            outdated = [each for each in self._idle if not each[0].takes(access)]
            self._idle = [each for each in self._idle if each[0].takes(access)]
            client = self._idle.pop()[1] if self._idle else None
        for _, each in outdated:
            each.close()
        if client is None:
            client = access.new_client()
        try:
            yield client
        finally:
            with self._lock:
                self._idle.append((access, client))

    def _until(self, start: float) -> float:
        """When a request that begins now has to end."""
        limit = getattr(self._limits, "until", None)
        deadline = start + self._deadline_seconds
        return deadline if limit is None else min(deadline, max(limit, start + _LEAST_SECONDS))

    def _limit(self, start: float) -> float:
        """The same, where the server is busy and says when to come again."""
        limit = getattr(self._limits, "until", None)
        return start + _LONGEST_BUSY_SECONDS if limit is None else self._until(start)

    def _give_up(self, access: Access, tries: _Tries) -> NoReturn:
        why = tries.failure(access)
        self._rest = (self._clock.elapsed() + self._rest_seconds, why)
        raise BackendUnreachable(why)


class _Tries:
    """What has become of a request so far."""

    def __init__(self, clock: Clock, start: float, until: float, limit: float) -> None:
        self._clock = clock
        self._start = start
        self._until = until
        self._limit = limit
        self._pauses = Pauses(_BACKOFF)
        self._is_renewed = False
        self._reason = ""

    def left(self) -> float:
        return self._until - self._clock.elapsed()

    def renew(self, login: Login, access: Access, refusal: NotAuthenticated | NoAnswer) -> None:
        """Have the next try be made as somebody else, with a newer token or another CA; once."""
        other = None
        if not self._is_renewed:
            self._is_renewed = True
            other = renewed_access(login, access, self.left())
        if other is None:
            raise not_let_in(access, refusal) from refusal

    def pause_after_busy(self, access: Access, refusal: Busy) -> float:
        """How long to wait; it doesn't count, unless somebody waits no longer than that."""
        self._reason = f"it is busy ({refusal})"
        pause = refusal.retry_after_seconds
        if pause is None:
            return self._next()
        now = self._clock.elapsed()
        if now + pause >= self._limit:
            raise BackendUnreachable(
                f"{access.server} is busy, and is to be asked again in {format_seconds(pause)}: "
                f"{refusal}"
            )
        self._until = min(self._limit, self._until + pause)
        return pause

    def pause_after(self, reason: NoAnswer) -> float:
        if not self._reason or str(reason) != NOT_IN_TIME:
            self._reason = str(reason)
        said = reason.retry_after_seconds if isinstance(reason, Failed) else None
        return self._next() if said is None else min(said, max(0.0, self.left()))

    def _next(self) -> float:
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


def addressed(access: Access, call: Call) -> Call:
    """A request whose URL begins at the path, as it is sent to a server."""
    return call._replace(
        url=access.server + call.url,
        headers={**call.headers, **access.headers},
        more_headers=access.more_headers,
        server_name=access.server_name,
    )


def current_access(login: Login, seconds: float) -> Access:
    """As `Login.current`, with errors that say nothing of what is under way: it isn't asked.

    Raises:
        AccessRefused: There is none.
    """
    try:
        return login.current(seconds)
    except (CorruptState, InvalidRequest, NotAllowed) as reason:
        raise AccessRefused(reason) from reason


def renewed_access(login: Login, refused: Access, seconds: float) -> Access | None:
    """As `Login.renewed`; otherwise as `current_access`."""
    try:
        return login.renewed(refused, seconds)
    except (CorruptState, InvalidRequest, NotAllowed) as reason:
        raise AccessRefused(reason) from reason


def not_let_in(access: Access, refusal: NotAuthenticated | NoAnswer) -> AccessRefused:
    """The error for a 401 that stays, or for a connection that one of both sides doesn't want.

    Expired, damaged and foreign look the same.
    """
    if isinstance(refusal, NotAuthenticated):
        return AccessRefused(
            NotAllowed(
                f"{access.server} doesn't know who we are (401: {refusal}): {access.who} has "
                "expired, is damaged, or is of another cluster; get a new one, or name another "
                "kubeconfig in LEASECTL_KUBECONFIG"
            )
        )
    advice = {
        "certificate": f"the certificate-authority in {access.found} has to be its CA",
        "name": f"tls-server-name in {access.found} can say which name it has",
        "ours": f"{access.who} has to be one that it knows",
        None: "",
    }[refusal.distrust]
    return AccessRefused(NotAllowed(f"{access.server}: {refusal}; {advice}"))


def _lost(access: Access, deed: Deed, reason: NoAnswer) -> LostAnswer:
    return LostAnswer(
        f"{access.server}: {reason}: nobody knows whether it did {deed}; look, and try again",
        status=reason.status if isinstance(reason, Failed) else 0,
        words=str(reason),
    )
