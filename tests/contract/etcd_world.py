"""etcd as a `World`: a real server, clients that are processes, and leases that end when told.

The server's own clock can't be put forward. So what it would let run out by then is revoked, which
is what it does itself when the time has come. That it does is shown in tests/crash.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from leasectl.engines.cluster.objects import Selection
from leasectl.engines.etcd.address import EtcdAddress
from leasectl.engines.etcd.gateway import Gateway
from leasectl.engines.etcd.opening import Opened, open_etcd
from leasectl.system.clock import Clock
from tests.contract.kubernetes_world import ObservingWorld
from tests.kit.etcd.server import EtcdServer


class EtcdWorld(ObservingWorld):
    """A prefix of its own, and the processes on it."""

    counts_grants = True
    numbers_what_happened = True

    def __init__(self, server: EtcdServer, folder: Path) -> None:
        self._server = server
        self._prefix = f"/test/{secrets.token_hex(8)}"
        super().__init__(folder)

    def open(self) -> Opened:
        # The server's time is real, whatever ours is put forward to: a request may be under way.
        return open_etcd(
            Gateway(EtcdAddress(tuple(self._server.endpoints), self._prefix), clock=Clock()),
            state_id="world",
            observed_path=self.observed,
            lost=self.losses.note,
            clock=self.time.clock,
            caller="world",
        )

    def close(self) -> None:
        super().close()
        self._gateway.close()

    def end_waiting(self, claim_key: str) -> None:
        for ticket in self._tickets(claim_key):
            self._gateway.revoke(int(ticket.life, 16))

    def pass_by(self, seconds: float) -> None:
        super().pass_by(seconds)
        now = self.time.clock.wall()
        for each in self._context.resources(Selection(kinds=("resource",))):
            claim = each.claim
            if claim and claim.ttl_seconds and claim.renew_time + claim.ttl_seconds <= now:
                self._gateway.revoke(int(claim.life, 16))

    def _all_have_renewed(self) -> bool:
        now, by_key = self.time.clock.elapsed(), {each.written: each for each in self._clients}
        return all(
            now - by_key[each.claim_key].renewed_at() < each.ttl_seconds / 3
            for each in self._waiting()
        )

    @property
    def _gateway(self) -> Gateway:
        assert isinstance(self._opened, Opened)
        return self._opened.gateway
