"""One participant's access to the pools in etcd, as tests use it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Callable

from leasectl.backends.contract import Patience
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.contract import LostListener
from leasectl.engines.etcd.address import EtcdAddress
from leasectl.engines.etcd.gateway import Gateway
from leasectl.engines.etcd.opening import open_etcd
from leasectl.engines.etcd.requests import read, read_all
from leasectl.engines.facts import Pool
from leasectl.model import Claimant, Lease, Request
from leasectl.state.event import Kept
from leasectl.system.clock import Clock
from tests.kit.recorded import NoJournal
from tests.kit.relay import Relay
from tests.kit.waits import eventually, join

CLOCK = Clock()
NAMES = ["T--0", "T--1", "T--2", "T--3"]
SHORT = 2.0  # seconds: etcd's shortest ttl


class Access:
    """What one process has of a prefix.

    Args:
        endpoints: The members' addresses.
        prefix: Below which everything is.
        state_id: The host and its state directory, as it were.
        seconds: How long a request may take.
        pause: Sleeps between two rounds of all members.
        lost: Told of losses that are noticed here; by default they are only kept.
        kept: Which events are kept.

    Attributes:
        lost: Who was told of which loss here.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        prefix: str,
        *,
        state_id: str = "host",
        seconds: float = 10.0,
        pause: Callable[[float], object] = lambda _: time.sleep(0.001),
        lost: LostListener | None = None,
        kept: Kept | None = None,
    ) -> None:
        self.lost: list[tuple[str, tuple[str, ...]]] = []
        lost = lost or self._note
        self.state_id = state_id
        address = EtcdAddress(tuple(endpoints), prefix)
        self.gateway = Gateway(address, clock=CLOCK, deadline_seconds=seconds, pause=pause)
        opened = open_etcd(self.gateway, state_id=state_id, lost=lost, clock=CLOCK, kept=kept)
        self.keys, self.context = self.gateway.keys, opened.context
        self.engine, self.pools, self.events = opened.engine, opened.pools, opened.events
        self.members, self.values = opened.members, opened.values
        self.backend = PoolBackend("etcd:", self.engine, opened, clock=CLOCK)

    def acquire(
        self,
        claim_key: str,
        request: Request,
        *,
        wait: float | None = None,
        patience: Patience | None = None,
    ) -> tuple[Lease, ...]:
        """Acquire, with a wait of so many seconds or with all that patience consists of."""
        claimant = Claimant(claim_key, f"job/1/host/{claim_key}", request)
        patience = patience or Patience(wait_seconds=wait)
        journal = NoJournal()
        self.backend.acquire(claimant, journal, patience)
        return journal.leases or ()

    def begin(
        self, claim_key: str, request: Request, patience: Patience | None = None
    ) -> Future[tuple[Lease, ...]]:
        """Acquire in a thread; its end is in what is returned."""
        ending: Future[tuple[Lease, ...]] = Future()

        def run() -> None:
            try:
                ending.set_result(self.acquire(claim_key, request, patience=patience))
            except BaseException as error:
                ending.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return ending

    def pool(self, pool_type: str = "T") -> Pool:
        (pool,) = self.pools.pools(pool_type)
        return pool

    def held(self) -> list[str]:
        return [each.name for each in self.pool().resources if each.lease]

    def queue(self) -> list[str]:
        return [entry.claim_key for entry in self.pool().queue]

    def grants(self) -> int:
        """How many there have been in the pool."""
        (found,) = self.gateway.read(read(self.keys.grants("T"))).answers
        return int(found.first.value) if found.first else 0

    def end(self, claim_key: str) -> None:
        """Have etcd end the claims of a claim key, as if their time was over."""
        for each in self.context.claimed(claim_key):
            assert each.claim is not None
            self.gateway.revoke(int(each.claim.life, 16))

    def _note(self, claim_key: str, names: Sequence[str]) -> None:
        self.lost.append((claim_key, tuple(names)))


def begin_listening(
    access: Access,
    between: Relay,
    request: Request,
    patience: Patience | None = None,
) -> Future[tuple[Lease, ...]]:
    """Start a waiter that has to wait, and return when it listens.

    Args:
        access: Its own, through the relay; nobody has waited there before.
        between: The relay.
        request: What it asks for, as "waiter".
        patience: How long it waits.
    """
    pending = access.begin("waiter", request, patience)
    eventually(lambda: "/v3/watch" in between.paths, what="it listens")
    return pending


def revisions(access: Access) -> dict[str, int]:
    """Return the keys of a store with the revisions of their last writes.

    The server's own revision also grows with what other tests have written, and what expires there.
    """
    (found,) = access.gateway.read(read_all(access.keys.prefix)).answers
    return {kv.key: kv.mod_revision for kv in found.items}


def keys_left(access: Access) -> list[str]:
    """What is in the store besides the pool."""
    keys = [key[len(access.keys.prefix) :] for key in revisions(access)]
    kept = ("/resource/", "/pool", "/grants")
    return [
        key
        for key in keys
        if key.startswith("of/")
        or (key.startswith("in/") and not any(each in key for each in kept))
    ]


_EVERY_SECONDS = 0.05


class Pulse:
    """Something small that is done again and again, beside what a test looks at.

    Attributes:
        longest_pause: For how many seconds it wasn't done, at the longest: what comes by the clock
            may come so much later.
    """

    def __init__(self, access: Access) -> None:
        self.longest_pause = 0.0
        self._access = access
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        before = time.monotonic()
        while not self._is_over.wait(_EVERY_SECONDS):
            self._access.gateway.read()
            now = time.monotonic()
            self.longest_pause = max(self.longest_pause, now - before - _EVERY_SECONDS)
            before = now

    def close(self) -> None:
        """End it, once it has seen what goes on now."""
        self._is_over.set()
        join(self._thread)


@contextlib.contextmanager
def pulse(access: Access) -> Iterator[Pulse]:
    """A pulse while something is done; it has been closed by the end of that."""
    beating = Pulse(access)
    try:
        yield beating
    finally:
        beating.close()
