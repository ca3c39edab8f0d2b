"""etcd as a `World`: a real server, clients that are processes, and leases that end when told.

The server's own clock can't be put forward. So what it would let run out by then is revoked, which
is what it does itself when the time has come. That it does is shown in tests/engines.
"""

from __future__ import annotations

import math
import secrets
from pathlib import Path

from leasectl.engines.etcd.engine import WAITER_TTL_SECONDS
from leasectl.engines.etcd.gateway.gateway import Gateway, new_etcd_lease_id
from leasectl.engines.etcd.gateway.requests import put, read, read_all
from leasectl.engines.etcd.key_values import etcd_lease_id_in, name_in, number_in
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.opening import Opened, open_below
from leasectl.engines.etcd.pools.listing import pool_types
from leasectl.engines.etcd.records import parse_claim
from leasectl.engines.facts import QueueEntry
from leasectl.engines.pacing import effective_priority
from leasectl.engines.pool_admin import Members
from leasectl.system.clock import Clock
from leasectl.system.process import this_process
from tests.contract.forked import ForkedClient, LostFile, SharedClock
from tests.contract.world import Client, Participant
from tests.kit.etcd.server import EtcdServer
from tests.kit.waits import eventually


class EtcdWorld:
    """A prefix of its own, and the processes on it."""

    ttl_seconds = 10.0
    keeps_stopped = False
    ages_itself = True
    counts_grants = True
    has_fences = True
    numbers_what_happened = True

    def __init__(self, server: EtcdServer, folder: Path) -> None:
        self._server = server
        self._losses = LostFile(folder / "lost")
        self._keys = Keys(f"/test/{secrets.token_hex(8)}", "world")
        self._time = SharedClock()
        opened = self._open()
        self._gateway, self.engine, self.pools = opened.gateway, opened.engine, opened.pools
        self.notes, self.values = opened.notes, opened.values
        self.events = opened.events
        self._clients: list[_Client] = []
        self._counted: dict[int, float] = {}  # since when, by the ids of the etcd leases
        self._kept: dict[int, float] = {}  # what else: until when, likewise

    def client(self) -> Client:
        client = _Client(f"handle-{len(self._clients)}", self)
        self._clients.append(client)
        return client

    @property
    def members(self) -> Members:
        return self._open().members

    def withdraw(self, client: Client) -> None:
        self.engine.withdraw(client.claim_key)

    def let_pass(self, seconds: float) -> None:
        for pool in self.pools.pools():
            if pool.settings.pace_seconds:
                self._have_all_look(pool.type)  # or they would know of a grant too late
        self._note_counted()
        self._note_kept()
        self._time.advance(seconds)
        self._end_kept()
        self._end_counted()
        if seconds >= WAITER_TTL_SECONDS:
            for client in self._clients:
                if client.is_stopped:
                    self.end_waiting(client.claim_key)
        now = self._time.clock.wall()
        for pool_type in pool_types(self._gateway, self._keys):
            helds, renewals = self._gateway.read(
                read_all(self._keys.helds(pool_type)), read_all(self._keys.renewals(pool_type))
            ).answers
            renewed = {etcd_lease_id_in(kv): number_in(kv) for kv in renewals.items}
            for claim in map(parse_claim, helds.items):
                duration = claim.lease_duration_seconds
                if duration is not None and renewed.get(claim.etcd_lease_id, now) + duration <= now:
                    self._gateway.revoke(claim.etcd_lease_id)
                    self._revoke_kept(pool_type, claim.etcd_lease_id)
            # Who waits sleeps on the kernel's clock, which doesn't jump: have them look.
            self._gateway.commit((), [put(self._keys.pool(pool_type), "")])
            self._have_risen(pool_type)

    def _note_counted(self) -> None:
        """Note since when etcd has counted what pools owe their pace."""
        for kv in self._gateway.read(read_all(self._keys.pace(""))).answers[0].items:
            if kv.etcd_lease_id:
                self._counted.setdefault(kv.etcd_lease_id, self._time.clock.elapsed())

    def _note_kept(self) -> None:
        """Note until when etcd keeps values, lifetimes and graces that it doesn't keep for good."""
        prefixes = [f"{self._keys.prefix}{each}/" for each in ("value", "life", "grace")]
        found = self._gateway.read(*map(read_all, prefixes)).answers
        for kv in (kv for each in found for kv in each.items):
            if kv.etcd_lease_id and kv.etcd_lease_id not in self._kept:
                left = self._gateway.time_left(kv.etcd_lease_id)
                self._kept[kv.etcd_lease_id] = self._time.clock.elapsed() + left

    def _end_kept(self) -> None:
        for etcd_lease_id, until in list(self._kept.items()):
            if until <= self._time.clock.elapsed():
                self._gateway.revoke(etcd_lease_id)
                del self._kept[etcd_lease_id]

    def _end_counted(self) -> None:
        """Have etcd be as far with that as it is later."""
        for kv in self._gateway.read(read_all(self._keys.pace(""))).answers[0].items:
            since = self._counted.get(kv.etcd_lease_id)
            if since is None:
                continue
            (pool,) = self.pools.pools(name_in(kv))
            until = since + number_in(kv) * pool.settings.pace_seconds
            left = math.ceil(until - self._time.clock.elapsed())
            if left <= 0:
                self._gateway.revoke(kv.etcd_lease_id)
            else:  # etcd would tell how much is left
                with_less = new_etcd_lease_id()
                self._gateway.grant(with_less, left)
                self._gateway.commit((), [put(kv.key, kv.value, etcd_lease_id=with_less)])
                self._counted[with_less] = since

    def _have_risen(self, pool_type: str) -> None:
        """Have all who wait count with what they have to by now."""
        aging = self.pools.pools(pool_type)[0].settings.aging_seconds
        if not aging:
            return
        self._write_settings_anew(pool_type)
        awake = {client.claim_key for client in self._clients if client.is_running}

        def has_risen(entry: QueueEntry) -> bool:
            waited = self._time.clock.wall() - entry.since - 1.0
            due = effective_priority(entry.priority, waited, aging)
            return entry.effective_priority >= due or entry.claim_key not in awake

        eventually(lambda: all(map(has_risen, self.pools.pools(pool_type)[0].queue)))

    def _have_all_look(self, pool_type: str) -> None:
        """Have all who wait see how things are now."""
        for _ in range(2):  # who sleeps for the second time has looked after the first
            waiting = [client for client in self._clients if client.is_running]
            before = {client: client.wakeups() for client in waiting}

            def have_woken(before: dict[_Client, int] = before) -> bool:
                self._write_settings_anew(pool_type)
                return all(
                    client.wakeups() > number or not self.is_waiting(client.claim_key)
                    for client, number in before.items()
                )

            eventually(have_woken)

    def _write_settings_anew(self, pool_type: str) -> None:
        """Wake all who wait."""
        key = self._keys.settings(pool_type)
        (settings,) = self._gateway.read(read(key)).answers[0].items
        self._gateway.commit((), [put(key, settings.value)])

    def _revoke_kept(self, pool_type: str, etcd_lease_id: int) -> None:
        gone = self._keys.gone(pool_type, etcd_lease_id)
        for kv in self._gateway.read(read_all(gone)).answers[0].items:
            if not kv.key.endswith("/seen"):
                self._gateway.revoke(etcd_lease_id_in(kv))

    def lost(self) -> list[tuple[str, str]]:
        return self._losses.read()

    def close(self) -> None:
        for client in self._clients:
            client.kill()
        self._gateway.close()

    def is_waiting(self, claim_key: str) -> bool:
        return bool(self._tickets(claim_key))

    def end_waiting(self, claim_key: str) -> None:
        """Have the time run out in which a dead waiter's ticket is still there."""
        for lease in self._tickets(claim_key):
            self._gateway.revoke(lease)

    def participant(self, client: ForkedClient) -> Participant:
        opened = self._open()
        return Participant(
            opened.engine,
            opened,
            self._time.clock,
            claim_key=client.claim_key,
            process=this_process(),
            count_wakeup=client.count_wakeup,
            count_timed_wait=client.count_timed_wait,
        )

    def _tickets(self, claim_key: str) -> list[int]:
        (found,) = self._gateway.read(read_all(self._keys.all_waiting(claim_key))).answers
        return [etcd_lease_id_in(kv) for kv in found.items]

    def _open(self) -> Opened:
        clock = self._time.clock
        # The server's time is real, whatever ours is put forward to: a request may be under way.
        gateway = Gateway(self._server.endpoints, clock=Clock())
        return open_below(self._keys, gateway, lost=self._losses.note, clock=clock)


class _Client(ForkedClient):
    def __init__(self, claim_key: str, world: EtcdWorld) -> None:
        self._world = world
        super().__init__(claim_key, world.participant, world.is_waiting)

    def kill(self) -> None:
        super().kill()
        self._world.end_waiting(self.claim_key)
