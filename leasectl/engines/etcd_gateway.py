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
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

import httpx

from leasectl.clock import Clock
from leasectl.durations import printable
from leasectl.errors import BackendUnreachable, CorruptState, LeaseError, NotAllowed

# etcd's own limit on operations, and on comparisons, of one transaction (--max-txn-ops).
MOST_OPERATIONS = 128

_CONNECT_SECONDS = 1.0
_ATTEMPT_SECONDS = 2.0
_PAUSE_SECONDS = 0.1

# The gRPC codes that the gateway passes on, as far as they say something that we act upon.
_NOT_FOUND, _PERMISSION_DENIED, _FAILED_PRECONDITION, _UNAUTHENTICATED = 5, 7, 9, 16
_INVALID_ARGUMENT, _RESOURCE_EXHAUSTED, _UNIMPLEMENTED = 3, 8, 12

Json = Mapping[str, Any]


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


class KeyValue(NamedTuple):
    """A key as etcd has it. The revisions are etcd's; ``lease`` is 0 for none."""

    key: str
    value: str
    create_revision: int
    mod_revision: int


class Found(NamedTuple):
    """What one read of a transaction found; ``count`` goes beyond the limit that was set."""

    items: tuple[KeyValue, ...]
    count: int  # type: ignore[assignment]  # etcd's word rather than tuple.count

    @property
    def first(self) -> KeyValue | None:
        return self.items[0] if self.items else None


class Outcome(NamedTuple):
    """What a transaction came to.

    Args:
        succeeded: Its guards held.
        revision: The store's, right after it.
        answers: Of its reads, those of the branch that was taken, in their order.
        repeated: An earlier try may have been carried out, and its answer was lost.
    """

    succeeded: bool
    revision: int
    answers: tuple[Found, ...]
    repeated: bool = False


# What transactions are made of


def encode(text: str) -> str:
    """Keys and values travel as base64."""
    return b64encode(text.encode()).decode()


def decode(text: str) -> str:
    """The reverse of `encode`.

    Raises:
        ValueError: It isn't text in base64.
    """
    return b64decode(text, validate=True).decode()


def end_of(prefix: str) -> str:
    """The key right after all keys that start with a prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def read(key: str) -> Json:
    """Read one key."""
    return {"request_range": {"key": encode(key)}}


def read_all(prefix: str, *, limit: int = 0, keys_only: bool = False) -> Json:
    """Read keys by prefix, in the order of the keys; 0 for no limit."""
    span = {"key": encode(prefix), "range_end": encode(end_of(prefix))}
    return {"request_range": {**span, "limit": str(limit), "keys_only": keys_only}}


def read_last_created(prefix: str, *, before: int) -> Json:
    """Read the key that was created last before a revision."""
    span = {"key": encode(prefix), "range_end": encode(end_of(prefix))}
    order = {"sort_order": "DESCEND", "sort_target": "CREATE", "limit": "1"}
    return {"request_range": {**span, **order, "max_create_revision": str(before - 1)}}


def count(prefix: str) -> Json:
    """Count keys by prefix."""
    span = {"key": encode(prefix), "range_end": encode(end_of(prefix))}
    return {"request_range": {**span, "count_only": True}}


def put(key: str, value: str, *, lease: int = 0) -> Json:
    """Write one key, attached to an etcd lease unless that is 0."""
    return {"request_put": {"key": encode(key), "value": encode(value), "lease": str(lease)}}


def delete(key: str) -> Json:
    """Delete one key, if it is there."""
    return {"request_delete_range": {"key": encode(key)}}


def none_below(prefix: str) -> Json:
    """Guard: there is no key with that prefix."""
    return {**absent(prefix), "range_end": encode(end_of(prefix))}


def delete_all(prefix: str) -> Json:
    """Delete keys by prefix."""
    span = {"key": encode(prefix), "range_end": encode(end_of(prefix))}
    return {"request_delete_range": span}


def unchanged(key: str, mod_revision: int) -> Json:
    """Guard: nobody has written the key since; 0 means that it isn't there."""
    wanted = {"target": "MOD", "result": "EQUAL", "mod_revision": str(mod_revision)}
    return {"key": encode(key), **wanted}


def created_at(key: str, create_revision: int) -> Json:
    """Guard: it is the same key still, whatever was written to it; 0 means that it isn't there."""
    wanted = {"target": "CREATE", "result": "EQUAL", "create_revision": str(create_revision)}
    return {"key": encode(key), **wanted}


def present(key: str) -> Json:
    """Guard: the key is there."""
    wanted = {"target": "CREATE", "result": "GREATER", "create_revision": "0"}
    return {"key": encode(key), **wanted}


def absent(key: str) -> Json:
    """Guard: the key isn't there."""
    return created_at(key, 0)


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
        return _outcome(*self._ask("/v3/kv/txn", body))

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


def _outcome(answer: Json, repeated: bool) -> Outcome:
    try:
        found = [
            _found(each["response_range"])
            for each in answer.get("responses", ())
            if "response_range" in each
        ]
        revision = int(answer["header"]["revision"])
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptState(f"etcd gave an answer that can't be read: {error!r}") from error
    return Outcome(bool(answer.get("succeeded")), revision, tuple(found), repeated)


def _found(answer: Json) -> Found:
    items = tuple(
        KeyValue(
            decode(kv["key"]),
            decode(kv.get("value", "")),
            int(kv["create_revision"]),
            int(kv["mod_revision"]),
        )
        for kv in answer.get("kvs", ())
    )
    return Found(items, int(answer.get("count", 0)))
