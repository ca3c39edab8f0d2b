"""Requests to etcd's v3 JSON gateway: whichever member answers, within a deadline.

Every request is made so that it may be repeated, because an answer that was lost says nothing.
Reads change nothing; a lease is granted under an id of ours and "already exists" means that it is;
a transaction has guards that it breaks itself, so that only one of its repetitions succeeds.
Which one did is read back (`Outcome.answers` of a transaction that failed), never guessed.

The one place where httpx's errors and etcd's codes become ours.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

import httpx

from leasectl.clock import Clock
from leasectl.durations import printable
from leasectl.engines.etcd_requests import Json, Outcome, parse_outcome
from leasectl.errors import BackendUnreachable, LeaseError, NotAllowed

_CONNECT_SECONDS = 1.0
_ATTEMPT_SECONDS = 2.0
_PAUSE_SECONDS = 0.1

# The gRPC codes that the gateway passes on, as far as they say something that we act upon.
_NOT_FOUND, _PERMISSION_DENIED, _FAILED_PRECONDITION, _UNAUTHENTICATED = 5, 7, 9, 16
_INVALID_ARGUMENT, _RESOURCE_EXHAUSTED, _UNIMPLEMENTED = 3, 8, 12


class LeaseGone(Exception):
    """The etcd lease that a request was about has expired or was revoked."""


class NoAnswer(Exception):
    """A member gave no answer that counts: the request may or may not have been carried out.

    Args:
        text: Why.
        sent: Whether the member can have got the request.
    """

    def __init__(self, text: str, *, sent: bool = True) -> None:
        super().__init__(text)
        self.sent = sent


class Member(NamedTuple):
    """What one member says of itself.

    Args:
        endpoint: Its base address.
        version: Of etcd.
        has_leader: Whether it knows of one.
        problem: Why it said nothing; empty when it did.
    """

    endpoint: str
    version: str = ""
    has_leader: bool = False
    problem: str = ""


class Gateway:
    """One cluster. Threads may share it.

    Args:
        endpoints: The members' base addresses, ``http://host:port``.
        clock: Where times come from.
        deadline_seconds: How long a request may take, all its repetitions included.
        pause: Called with seconds between two rounds of all members.
        verify: As httpx has it; False for ``http://``, where there is nothing to verify.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        clock: Clock,
        deadline_seconds: float = 10.0,
        pause: Callable[[float], object] = time.sleep,
        verify: Any = False,
    ) -> None:
        self.endpoints = tuple(endpoints)
        self.verify = verify
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._pause = pause
        self._lock = threading.Lock()
        self._current = 0
        self._client: httpx.Client | None = None

    @property
    def current(self) -> int:
        """The number of the member that was last found to answer."""
        return self._current

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

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
            LeaseGone: A key was to be attached to a lease that isn't there any more.
            BackendUnreachable: No answer before the deadline.
        """
        body = {"compare": list(guards), "success": list(then), "failure": list(otherwise)}
        return parse_outcome(*self._ask("/v3/kv/txn", body))

    def read(self, *reads: Json) -> Outcome:
        """Read several things as they are at one revision."""
        return self.commit((), reads)

    def grant(self, lease: int, ttl_seconds: int) -> None:
        """Make an etcd lease under an id that nobody else would choose."""
        with contextlib.suppress(_AlreadyExists):  # by a try whose answer was lost
            self._ask("/v3/lease/grant", {"ID": str(lease), "TTL": str(ttl_seconds)})

    def revoke(self, lease: int) -> None:
        """End an etcd lease and delete what is attached to it, if it is there."""
        with contextlib.suppress(LeaseGone):
            self._ask("/v3/lease/revoke", {"ID": str(lease)})

    def keep_alive(self, lease: int) -> bool:
        """Give an etcd lease its full time again; returns whether it was still there."""
        answer, _ = self._ask("/v3/lease/keepalive", {"ID": str(lease)})
        return is_alive(answer)

    def time_left(self, lease: int) -> float:
        """How long an etcd lease lasts unless it is renewed, in seconds; 0 when it is over."""
        answer, _ = self._ask("/v3/lease/timetolive", {"ID": str(lease)})
        return max(0.0, float(answer.get("TTL", 0)))

    def member(self, member: int, seconds: float) -> Member:
        """Ask one member, within so many seconds, how it is."""
        endpoint = self.endpoints[member]
        try:
            with self.client() as client:
                said = self._try(client, member, "/v3/maintenance/status", {}, seconds)
        except (NoAnswer, LeaseError) as error:
            return Member(endpoint, problem=str(error))
        # "0", or nothing at all, while there is none.
        has_leader = str(said.get("leader", "0")) != "0"
        return Member(endpoint, printable(str(said.get("version", "unknown"))), has_leader)

    def keep_alive_at(self, client: httpx.Client, member: int, lease: int, seconds: float) -> bool:
        """The same at one member, within its time and without a second try.

        Raises:
            NoAnswer: None that counts.
        """
        body = {"ID": str(lease)}
        return is_alive(self._try(client, member, "/v3/lease/keepalive", body, seconds))

    def client(self) -> httpx.Client:
        """A client of its own, for a thread that is to disturb nobody."""
        return httpx.Client(verify=self.verify, trust_env=False)

    def _ask(self, path: str, body: Json) -> tuple[Json, bool]:
        """The answer, and whether the request may have been carried out before."""
        deadline = self._clock.elapsed() + self._deadline_seconds
        reasons: dict[str, None] = {}
        repeated = False
        while True:
            for _ in self.endpoints:
                member = self._current
                seconds = min(_ATTEMPT_SECONDS, deadline - self._clock.elapsed())
                if seconds <= 0:
                    raise BackendUnreachable(
                        f"no answer from etcd within {self._deadline_seconds:g}s: "
                        f"{'; '.join(reasons)}; is it there, and does it have a quorum?"
                    )
                try:
                    answer = self._try(self._own_client(), member, path, body, seconds)
                except NoAnswer as reason:
                    repeated = repeated or reason.sent
                    reasons[f"{self.endpoints[member]}: {reason}"] = None
                    self._leave(member)
                else:
                    return answer, repeated
            self._pause(_PAUSE_SECONDS)

    def _leave(self, member: int) -> None:
        with self._lock:
            if self._current == member:
                self._current = (member + 1) % len(self.endpoints)

    def _own_client(self) -> httpx.Client:
        with self._lock:
            if self._client is None:
                self._client = self.client()
            return self._client

    def _try(
        self, client: httpx.Client, member: int, path: str, body: Json, seconds: float
    ) -> Json:
        url = self.endpoints[member] + path
        timeout = httpx.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS))
        try:
            response = client.post(url, json=body, timeout=timeout)
        except (httpx.HTTPError, httpx.StreamError) as error:
            detail = str(error) or type(error).__name__
            sent = not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
            raise NoAnswer(printable(detail, longest=80), sent=sent) from error
        return _parse(url, response.status_code, response.text)


class _AlreadyExists(Exception):
    """An etcd lease of that id is there."""


def is_alive(answer: Json) -> bool:
    """Tell whether a keep-alive found its lease: etcd leaves the time out when there is none."""
    return int(answer.get("result", {}).get("TTL", 0)) > 0


def _parse(url: str, status: int, text: str) -> Json:
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or (status != 200 and "code" not in answer):
        shown = printable(text.strip(), longest=60)
        raise NoAnswer(f"answered {status} {shown}, which etcd's v3 gateway wouldn't")
    if status == 200 and "error" not in answer:
        return answer
    raise _refusal(url, answer)


def _refusal(url: str, answer: Json) -> Exception:
    said = answer.get("error")
    if isinstance(said, dict):  # in the middle of a stream
        answer, said = said, said.get("message")
    text = printable(str(said), longest=120)
    code = answer.get("code", answer.get("grpc_code"))
    refusals: dict[object, Exception] = {
        _NOT_FOUND: LeaseGone(text),
        _FAILED_PRECONDITION: _AlreadyExists(text),
        _PERMISSION_DENIED: NotAllowed(f"{url}: {text}"),
        _UNAUTHENTICATED: NotAllowed(f"{url}: {text}"),
        _INVALID_ARGUMENT: LeaseError(f"{url}: {text}"),
        _RESOURCE_EXHAUSTED: BackendUnreachable(f"{url}: {text}"),
        _UNIMPLEMENTED: LeaseError(f"{url}: {text}"),
    }
    # All others (no leader, leader changed, timed out) say nothing about what became of it.
    return refusals.get(code, NoAnswer(text))
