"""What happens below a prefix of a cluster, as the cluster itself tells it, change by change."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import httpx

from leasectl.engines.cluster.objects import Claim, Found, ResourceObject, TicketObject
from leasectl.engines.etcd.encoding import decode
from leasectl.engines.etcd.gateway import Gateway
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.requests import (
    KeyValue,
    absent,
    encode,
    end_of,
    parse_key_value,
    put,
)
from leasectl.system.clock import boottime_seconds
from tests.kit.waits import eventually, wait_set

# A waiter claims by what it has seen a moment before. A better ticket that comes in between, or
# becomes better by aging, is passed; on a busy machine that moment is long.
_SETTLED_SECONDS = 1.0


class Written(NamedTuple):
    """One change.

    Args:
        heard_at: When it was heard of, CLOCK_BOOTTIME in seconds.
        kv: The key, at the revision of the change; without a value where it was deleted.
        is_delete: It was deleted.
    """

    heard_at: float
    kv: KeyValue
    is_delete: bool


class Chronicle:
    """All changes below a prefix, from when it is opened.

    Args:
        endpoint: Of a member.
        prefix: Which.
    """

    def __init__(self, endpoint: str, prefix: str) -> None:
        self.written: list[Written] = []
        self._prefix = prefix
        self._client = httpx.Client(timeout=None)
        self._has_begun = threading.Event()
        self._thread = threading.Thread(
            target=self._follow, args=(f"{endpoint}/v3/watch", prefix), daemon=True
        )
        self._thread.start()
        wait_set(self._has_begun)

    def all_until_now(self, gateway: Gateway) -> list[Written]:
        """Wait until it has heard of all that was written so far; return that.

        A key of its own tells. The cluster's revision doesn't: leases of other prefixes end, too.
        """
        key = f"{self._prefix}heard/{os.urandom(8).hex()}"
        revision = gateway.commit([absent(key)], [put(key, "")]).revision
        eventually(lambda: self.written and self.written[-1].kv.mod_revision >= revision)
        return self.written

    def close(self) -> None:
        self._client.close()

    def _follow(self, url: str, prefix: str) -> None:
        body = {"create_request": {"key": encode(prefix), "range_end": encode(end_of(prefix))}}
        ended = contextlib.suppress(httpx.HTTPError, RuntimeError, OSError)  # by `close`
        with ended, self._client.stream("POST", url, json=body) as stream:
            for line in stream.iter_lines():
                now, result = boottime_seconds(), json.loads(line)["result"]
                self._has_begun.set()
                for event in result.get("events", ()):
                    kv, is_delete = parse_key_value(event["kv"]), event.get("type") == "DELETE"
                    self.written.append(Written(now, kv, is_delete))


@contextlib.contextmanager
def chronicle(endpoint: str, prefix: str) -> Iterator[Chronicle]:
    """A chronicle for as long as the block lasts."""
    opened = Chronicle(endpoint, prefix)
    try:
        yield opened
    finally:
        opened.close()


class Grant(NamedTuple):
    """One grant, and who waited when it was made.

    Args:
        heard_at: When it was heard of, in seconds.
        ticket: Its number.
        names: What was granted.
        passed: The tickets that could have used that and had been better for `_SETTLED_SECONDS`.
    """

    heard_at: float
    ticket: int
    names: tuple[str, ...]
    passed: tuple[int, ...]


def grants_in(written: Sequence[Written], keys: Keys, pool_type: str) -> list[Grant]:
    """The grants in a pool, each judged by what was there right before it."""
    tickets: dict[str, TicketObject] = {}  # of the living, by name
    ranked_at: dict[str, float] = {}  # when their priority became what it is
    had: dict[str, str] = {}  # the ticket of the last claim, by resource
    found = []
    for _, changes in groupby(written, key=lambda each: each.kv.mod_revision):
        together = [each for each in changes if each.kv.key.startswith(keys.pool(pool_type))]
        claimed: dict[str, list[ResourceObject]] = {}
        for each in together:
            resource = None if each.is_delete else _object(each.kv)
            if isinstance(resource, ResourceObject) and resource.claim is not None:
                if had.get(resource.name) != resource.claim.ticket:
                    claimed.setdefault(resource.claim.ticket, []).append(resource)
                had[resource.name] = resource.claim.ticket
        for name, resources in claimed.items():
            names = tuple(each.name for each in resources)
            claim = resources[0].claim
            assert claim is not None
            now = together[0].heard_at
            settled = [
                ticket
                for each, ticket in tickets.items()
                if ranked_at[each] <= now - _SETTLED_SECONDS
            ]
            passed = _passed(tickets.get(name), claim, names, settled)
            found.append(Grant(now, claim.place, names, passed))
        for each in together:
            name = f"ticket/{pool_type}/{each.kv.key.rpartition('/')[2]}"
            ticket = None if each.is_delete else _object(each.kv)
            if isinstance(ticket, TicketObject):
                before = tickets.get(name)
                if before is None or before.counts_as != ticket.counts_as:
                    ranked_at[name] = each.heard_at
                tickets[name] = ticket
            elif each.is_delete:  # or what says that its waiter lives
                tickets.pop(name, None)
    return found


def _object(kv: KeyValue) -> Found | None:
    return decode(kv) if kv.value.startswith("{") else None


def _passed(
    own: TicketObject | None, claim: Claim, names: Sequence[str], tickets: Iterable[TicketObject]
) -> tuple[int, ...]:
    """The tickets that were better; one that was never put has looked before it was to be."""
    priority = 0 if own is None else own.counts_as
    better = [
        each
        for each in tickets
        if (-each.counts_as, each.place) < (-priority, claim.place)
        and (own is not None or each.place < claim.place)
    ]
    return tuple(each.place for each in better if each.want.name in (None, *names))
