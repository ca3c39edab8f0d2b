"""leasectl.leases.renewal_threads: renewals that nobody has to wait for."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import pytest

from leasectl.backends.contract import Patience
from leasectl.backends.kinds import Context
from leasectl.backends.servers import Renew, RenewalTerms
from leasectl.engines.notes import Note
from leasectl.leases.acquire import acquire
from leasectl.leases.renewal_threads import RenewalThreads, Renewed
from leasectl.model import ReleaseTarget, Request, whole
from tests.kit.desk import Desk
from tests.kit.made_up_backend import MadeUpBackend
from tests.kit.made_up_server import URL, Server
from tests.kit.waits import wait_readable


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
            wait_readable(threads.fd)
            came.update((target, outcome.result()) for target, outcome in threads.outcomes())
    assert came == {
        whole(handle): Renewed(
            (f"{handle.id}/1 of {desk.state.state_id()} for {ttl}s at {URL}",), ()
        )
        for handle, ttl in zip(handles, (7, 9))
    }


def test_each_comes_with_what_is_noted_at_its_own_claims(
    desk: Desk, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_renewals(context: Context, terms: RenewalTerms) -> Renew:
        def renew(claim_key: str, names: Sequence[str]) -> tuple[str, ...]:
            terms.noted([Note("T", name, 1, f"of {name}") for name in names])
            return tuple(names)

        return renew

    monkeypatch.setattr(MadeUpBackend, "open_renewals", open_renewals)
    service = desk.as_caller(desk.caller, URL)
    came: dict[ReleaseTarget, Renewed] = {}
    with contextlib.closing(RenewalThreads(desk.state, clock=desk.time.clock)) as threads:
        for _ in range(2):
            threads.send(acquire(service, Request("T"), patience=Patience(0)))
        while len(came) < 2:
            assert threads.fd is not None
            wait_readable(threads.fd)
            came.update((target, outcome.result()) for target, outcome in threads.outcomes())
    assert sorted(came.values()) == [
        Renewed((name,), (Note("T", name, 1, f"of {name}"),)) for name in ("T--00", "T--01")
    ]
