"""leasectl.leases.renewal_threads: renewals that nobody has to wait for."""

from __future__ import annotations

import contextlib

from leasectl.backends.contract import Patience
from leasectl.leases.acquire import acquire
from leasectl.leases.renewal_threads import RenewalThreads, Renewed
from leasectl.model import ReleaseTarget, Request, whole
from leasectl.system.poll import is_readable
from tests.kit.desk import Desk
from tests.kit.made_up_server import URL, Server


def test_each_is_sent_to_its_server_with_its_ttl_and_comes_back_with_its_handle(
    desk: Desk, server: Server
) -> None:
    service = desk.as_caller(desk.caller, URL)
    handles = [
        acquire(service, Request("T", ttl_seconds=ttl), patience=Patience(0)) for ttl in (7.0, 9.0)
    ]
    came: dict[ReleaseTarget, Renewed] = {}
    with contextlib.closing(RenewalThreads(desk.state, clock=desk.time.clock)) as threads:
        for handle in handles:
            threads.send(handle)
        while len(came) < 2:
            assert threads.fd is not None
            assert is_readable(threads.fd, 20)
            came.update((target, outcome.result()) for target, outcome in threads.outcomes())
    assert came == {
        whole(handle): Renewed(
            (f"{handle.id}/1 of {desk.state.state_id()} for {ttl}s at {URL}",), ()
        )
        for handle, ttl in zip(handles, (7, 9))
    }
