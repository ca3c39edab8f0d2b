"""The operations of etcd's v3 JSON gateway, each within a deadline.

Every request is made so that it may be repeated, because an answer that was lost says nothing.
Reads change nothing; an etcd lease is made under an id of ours, and "already exists" means that it
is there; a transaction has guards that it breaks itself, so that only one of its repetitions
succeeds. Which one did is read back (`Outcome.answers` of one that failed), never guessed.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from leasectl.engines.etcd.access import KEEP_ALIVE, MemberAccess
from leasectl.engines.etcd.answers import (
    EtcdLeaseGone,
    FailedPrecondition,
    Failures,
    PermissionDenied,
    Unauthenticated,
    is_alive,
)
from leasectl.engines.etcd.requests import Json, Outcome, parse_outcome, unreadable_answer
from leasectl.errors import (
    AccessRefused,
    BackendUnreachable,
    CorruptState,
    InvalidRequest,
    NotAllowed,
)
from leasectl.http.exchange import Client
from leasectl.http.no_answer import NoAnswer
from leasectl.system.backoff import Backoff, Pauses
from leasectl.system.clock import Clock
from leasectl.text.properties import MALFORMED, read_integer
from leasectl.text.wording import printable

if TYPE_CHECKING:
    from leasectl.http.tls import Trust

ATTEMPT_SECONDS = 2.0
# Between two rounds of all members.
_BACKOFF = Backoff(first_seconds=0.1, longest_seconds=1.0, chance=0.5)
_LONGEST_LOGIN_SECONDS = 60.0
# However little time is left, an answer that takes no longer is waited for.
_LEAST_SECONDS = 3.0


class MemberStatus(NamedTuple):
    """What one member says of itself.

    Args:
        endpoint: Its base address.
        version: Of etcd; empty where we may not know.
        has_leader: Whether it knows of one, or may as we may not know.
        problem: Why it said nothing; empty when it did.
        advice: What to do about that, where there is something in particular.
    """

    endpoint: str
    version: str = ""
    has_leader: bool = False
    problem: str = ""
    advice: str = ""


def new_etcd_lease_id() -> int:
    """An id for an etcd lease that nobody else would choose."""
    # Signed in etcd, and 0 is none.
    return (int.from_bytes(os.urandom(8), "big") >> 1) or 1


class Gateway:
    """One cluster. Threads may share it.

    Args:
        endpoints: The members' base addresses, ``http://host:port``.
        clock: Where times come from.
        deadline_seconds: How long a request may take, all its repetitions included.
        attempt_seconds: How long one of them may, at one member.
        rest_seconds: For how long nobody is asked again when nobody has answered in time: for a
            process in which many would wait for that, one after the other.
        pause: Called with seconds between two rounds of all members.
        trust: For connections to ``https://``; nothing is read before the first.
        user_file: Path of a file with ``user:password``, read whenever a token is needed; None
            where etcd asks for none.
        prefix: Below which a user needs to be allowed everything, for messages.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        clock: Clock,
        deadline_seconds: float = 10.0,
        attempt_seconds: float = ATTEMPT_SECONDS,
        rest_seconds: float = 0.0,
        pause: Callable[[float], object] = time.sleep,
        trust: Trust | None = None,
        user_file: str | None = None,
        prefix: str = "",
    ) -> None:
        self.endpoints = tuple(endpoints)
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._attempt_seconds = attempt_seconds
        self._rest_seconds = rest_seconds
        self._rest = (0.0, "")  # until when on the elapsed clock, and why
        self._pause = pause
        self._access = MemberAccess(
            self.endpoints,
            clock=clock,
            trust=trust,
            user_file=user_file,
            prefix=prefix,
            pause=pause,
        )
        self._limits = threading.local()  # `until`: see `limited`
        self._lock = threading.Lock()
        # Under the lock, which nobody holds while waiting for a member:
        self._current = 0
        self._idle: list[Client] = []  # those that nobody uses
        self._is_closed = False

    @property
    def current(self) -> int:
        """The number of the member that was last found to answer."""
        return self._current

    def close(self) -> None:
        """End all connections, but for those of clients that were asked for."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._is_closed = True
        for client in idle:
            client.close()

    @contextlib.contextmanager
    def limited(self, until: float | None) -> Iterator[None]:
        """Wait not much longer for what this thread asks inside; None for as long as ever.

        All members have their share of the time that is left.
        """
        before = getattr(self._limits, "until", None)
        self._limits.until = until
        try:
            yield
        finally:
            self._limits.until = before

    # What etcd does

    def commit(
        self, guards: Sequence[Json], then: Sequence[Json], otherwise: Sequence[Json] = ()
    ) -> Outcome:
        """Do all or nothing, if all guards hold.

        An earlier try whose answer was lost may be what made them fail (`Outcome.repeated`). So
        whoever must know what became of it reads that in ``otherwise``.

        Args:
            guards: As `unchanged` and the like make them; at least one that the transaction
                breaks, where it writes.
            then: As `put`, `delete`, `read` and the like make them.
            otherwise: The same, done when a guard doesn't hold.

        Raises:
            EtcdLeaseGone: A key was to be attached to a lease that isn't there any more.
            BackendUnreachable: No answer before the deadline, or none that could come.
            AccessRefused: etcd doesn't know the user, or the user may not do this, or a file that
                is needed to ask can't be used.
        """
        parts = {"compare": list(guards), "success": list(then), "failure": list(otherwise)}
        body = {name: part for name, part in parts.items() if part}
        return parse_outcome(*self._ask("/v3/kv/txn", body), then, otherwise)

    def read(self, *reads: Json) -> Outcome:
        """Read several things as they are at one revision."""
        return self.commit((), reads)

    def grant(self, etcd_lease_id: int, ttl_seconds: int) -> None:
        """Make an etcd lease under an id as `new_etcd_lease_id` makes them."""
        with contextlib.suppress(FailedPrecondition):  # by a try whose answer was lost
            self._ask("/v3/lease/grant", {"ID": str(etcd_lease_id), "TTL": str(ttl_seconds)})

    def revoke(self, etcd_lease_id: int) -> None:
        """End an etcd lease and delete what is attached to it, if it is there."""
        with contextlib.suppress(EtcdLeaseGone):
            self._ask("/v3/lease/revoke", {"ID": str(etcd_lease_id)})

    def revoke_unused(self, etcd_lease_id: int) -> None:
        """End an etcd lease that nothing is attached to; if that fails it ends by itself."""
        with contextlib.suppress(BackendUnreachable):
            self.revoke(etcd_lease_id)

    def keep_alive(self, etcd_lease_id: int) -> bool:
        """Give an etcd lease its full time again; returns whether it was still there."""
        answer, _ = self._ask(KEEP_ALIVE, {"ID": str(etcd_lease_id)})
        try:
            return is_alive(answer)
        except MALFORMED as error:
            raise unreadable_answer(error) from error

    def seconds_left(self, etcd_lease_id: int) -> int:
        """Return after how many seconds an etcd lease ends at the latest; it may have ended."""
        answer, _ = self._ask("/v3/lease/timetolive", {"ID": str(etcd_lease_id)})
        try:
            return read_integer(answer.get("TTL", 0)) + 1  # etcd rounds down, and says -1 for none
        except MALFORMED as error:
            raise unreadable_answer(error) from error

    def status(self, member: int, seconds: float) -> MemberStatus:
        """Ask one member, within so many seconds, how it is.

        Raises:
            LeaseError: It can't be asked, for a reason that is the same at every member.
        """
        endpoint = self.endpoints[member]
        try:
            with self.client() as client:
                said = self._access.ask(client, member, "/v3/maintenance/status", {}, seconds)
        except NoAnswer as reason:
            return MemberStatus(endpoint, problem=str(reason), advice=reason.advice)
        except NotAllowed as refusal:
            if not isinstance(refusal.__cause__, (PermissionDenied, Unauthenticated)):
                raise
            # It is there. Since etcd 3.6 only who may do everything is told more, where users are
            # demanded; what this one may, the next request says.
            return MemberStatus(endpoint, has_leader=True)
        # "0", or nothing at all, while there is none.
        has_leader = str(said.get("leader", "0")) != "0"
        return MemberStatus(endpoint, printable(str(said.get("version", "unknown"))), has_leader)

    def leave(self, member: int) -> None:
        """Have requests go to the next member first, unless that one has been left already."""
        with self._lock:
            if self._current == member:
                self._current = (member + 1) % len(self.endpoints)

    def client(self) -> Client:
        """Implements `MemberAccess.client`."""
        return self._access.client()

    def headers(self, client: Client, member: int, seconds: float) -> dict[str, str]:
        """Implements `MemberAccess.headers`."""
        return self._access.headers(client, member, seconds)

    @contextlib.contextmanager
    def _idle_client(self) -> Iterator[Client]:
        with self._lock:
            client = self._idle.pop() if self._idle else None
        if client is None:
            client = self.client()
        try:
            yield client
        finally:
            with self._lock:
                is_kept = not self._is_closed
                if is_kept:
                    self._idle.append(client)
            if not is_kept:  # a thread was about to end that asked something
                client.close()

    def _ask(self, path: str, body: Json) -> tuple[Json, bool]:
        """The answer, and whether the request may have been carried out before."""
        try:
            return self._ask_anybody(path, body)
        except (CorruptState, InvalidRequest, NotAllowed) as reason:
            raise AccessRefused(reason) from reason

    def _time_for(self, start: float) -> tuple[float, float]:
        """When a request that begins now has to end, and how many seconds a member has for it."""
        deadline, attempt_seconds = start + self._deadline_seconds, self._attempt_seconds
        until = getattr(self._limits, "until", None)
        if until is not None:
            deadline = min(deadline, max(until, start + _LEAST_SECONDS))
            attempt_seconds = min(attempt_seconds, (deadline - start) / len(self.endpoints))
        return deadline, attempt_seconds

    def _login_seconds(self, left: float) -> float:
        """Return how long a login may take: longer than a request, for a waiter that has time.

        Of many that come at once, all logins take as long as etcd takes for all passwords; what is
        given up and repeated makes that longer.
        """
        until: float | None = getattr(self._limits, "until", None)
        if until is None:
            return left
        return max(left, min(until - self._clock.elapsed(), _LONGEST_LOGIN_SECONDS))

    def _ask_anybody(self, path: str, body: Json) -> tuple[Json, bool]:
        start = self._clock.elapsed()
        rests_until, why = self._rest
        if start < rests_until:
            raise BackendUnreachable(why)
        deadline, attempt_seconds = self._time_for(start)
        failures = Failures()
        repeated = False
        pauses = Pauses(_BACKOFF)
        with self._idle_client() as client:
            while True:
                lasting = True
                for turns in range(len(self.endpoints), 0, -1):
                    member, left = self._current, deadline - self._clock.elapsed()
                    seconds = min(attempt_seconds, left)
                    if seconds <= 0:
                        why = failures.text(deadline - start)
                        self._rest = (self._clock.elapsed() + self._rest_seconds, why)
                        raise BackendUnreachable(why)
                    try:
                        answer = self._access.ask(
                            client,
                            member,
                            path,
                            body,
                            seconds,
                            login_seconds=self._login_seconds(left) / turns,
                        )
                        return answer, repeated
                    except NoAnswer as reason:
                        repeated = repeated or reason.sent
                        lasting = lasting and reason.lasting
                        failures.note(self.endpoints[member], reason)
                        self.leave(member)
                if lasting and not client.is_outdated:
                    error = BackendUnreachable(failures.text())
                    error.lasting = True
                    raise error
                self._pause(min(pauses.next(), max(0.0, deadline - self._clock.elapsed())))
