"""What happens below a prefix of a cluster, as the cluster itself tells it, change by change."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import httpx

from leasectl.engines.etcd.gateway.requests import KeyValue, encode, end_of, parse_key_value
from leasectl.engines.etcd.key_values import etcd_lease_id_in
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.queues.rank import in_order, priorities
from leasectl.engines.etcd.records import parse_claim, parse_ticket
from leasectl.system.clock import boottime_seconds
from tests.kit.waits import eventually, wait_set


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
        self._client = httpx.Client(timeout=None)
        self._has_begun = threading.Event()
        self._thread = threading.Thread(
            target=self._follow, args=(f"{endpoint}/v3/watch", prefix), daemon=True
        )
        self._thread.start()
        wait_set(self._has_begun)

    def until(self, revision: int) -> list[Written]:
        """Wait until it has heard of something at that revision or later; all of it."""
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
        passed: The tickets that were better and could have used that, if there were any.
    """

    heard_at: float
    ticket: int
    names: tuple[str, ...]
    passed: tuple[int, ...]


def grants_in(written: Sequence[Written], keys: Keys, pool_type: str) -> list[Grant]:
    """The grants in a pool, each judged by what was there right before it."""
    tickets: dict[str, KeyValue] = {}
    ranks: dict[str, KeyValue] = {}
    found = []
    for _, changes in groupby(written, key=lambda each: each.kv.mod_revision):
        together = list(changes)
        gone = {each.kv.key: tickets.get(each.kv.key) for each in together if each.is_delete}
        for each in together:
            if each.is_delete or not each.kv.key.startswith(keys.helds(pool_type)):
                continue
            own = gone.get(keys.ticket(pool_type, etcd_lease_id_in(each.kv)))
            if own is not None:  # else it is something that has become of an earlier one
                names = parse_claim(each.kv).names
                passed = _passed(own, names, list(tickets.values()), list(ranks.values()))
                found.append(Grant(each.heard_at, own.create_revision, names, passed))
        for each in together:
            for prefix, there in ((keys.tickets, tickets), (keys.ranks, ranks)):
                if each.kv.key.startswith(prefix(pool_type)):
                    there.pop(each.kv.key, None)
                    if not each.is_delete:
                        there[each.kv.key] = each.kv
    return found


def _passed(
    own: KeyValue,
    names: Sequence[str],
    tickets: Sequence[KeyValue],
    ranks: Sequence[KeyValue],
) -> tuple[int, ...]:
    order = in_order(tickets, priorities(ranks))
    better = order[: order.index(own)]
    wanted = [(kv.create_revision, parse_ticket(kv).name) for kv in better]
    return tuple(number for number, name in wanted if name is None or name in names)
