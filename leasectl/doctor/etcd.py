"""Check an etcd cluster: members, access, claims."""

from __future__ import annotations

from collections.abc import Mapping

from leasectl.doctor.findings import (
    Checks,
    Finding,
    access_used,
    circular,
    fail,
    left_on_server,
    ok,
    warn,
)
from leasectl.doctor.holders import agreement, memberships_of
from leasectl.engines.etcd.address import EtcdAddress, parse_etcd_url
from leasectl.engines.etcd.answers import advice_of
from leasectl.engines.etcd.encoding import find_astray, mend_astray
from leasectl.engines.etcd.gateway import Gateway, read_user
from leasectl.engines.etcd.opening import Opened, open_etcd, probe
from leasectl.errors import BackendUnreachable
from leasectl.http.settings import Settings
from leasectl.leases.service import Service
from leasectl.system.clock import Clock
from leasectl.text.naming import is_reserved
from leasectl.text.wording import counted, listed, printable

DEADLINE_SECONDS = 3.0
_MEMBER_SECONDS = 1.0


def checks(url: str, settings: Settings, environment: Mapping[str, str]) -> Checks:
    """The checks of a cluster that need no state directory; when one fails, so do the rest."""
    opened = _open(url, settings, "")
    address = parse_etcd_url(url)
    return {
        "etcd access": lambda: access(address, settings),
        "etcd members": lambda: members(opened),
        "etcd pools": lambda: pools(opened),
        "etcd copies": lambda: copies(opened),
        "etcd events": lambda: events(opened),
        "etcd writing": lambda: write_access(opened, address.prefix),
    }


def checks_of_claims(service: Service, settings: Settings) -> Checks:
    """The checks of what a state directory holds in the cluster that its service has chosen."""
    opened = _open(service.backend_url, settings, service.state.state_id())
    return {
        "etcd claims": lambda: agreement(service, "etcd", opened),
        "etcd once records": lambda: left_on_server(service),
        "etcd memberships": lambda: memberships_of(opened),
        "etcd circular waits": lambda: circular(service),
    }


def _open(url: str, settings: Settings, state_id: str) -> Opened:
    clock = Clock()
    address = parse_etcd_url(url)
    gateway = Gateway(address, settings, clock=clock, deadline_seconds=DEADLINE_SECONDS)
    return open_etcd(gateway, state_id=state_id, clock=clock, only_looks=True)


def access(address: EtcdAddress, settings: Settings) -> Finding:
    """Which credentials are used, and can their files be read?"""
    who = "without a user"
    if settings.user_file:
        who = f"as user {read_user(settings.user_file).name} of {settings.user_file}"
    return access_used(who, settings, is_secure=address.is_secure)


def members(opened: Opened) -> Finding:
    """Does each member answer, and do they agree on a leader?"""
    found = [
        opened.gateway.status(n, _MEMBER_SECONDS) for n in range(len(opened.gateway.endpoints))
    ]
    silent = [f"{each.endpoint}: {each.problem}" for each in found if each.problem]
    advice = advice_of(*(each.advice for each in found))
    versions = sorted({each.version for each in found if each.version})
    answered = len(found) - len(silent)
    what = f"{answered} of {len(found)} members answer" + (
        f", etcd {listed(versions)}" if versions else ""
    )
    if not answered:
        return fail(
            f"{what} ({listed(silent)})",
            advice or "check the addresses, and whether etcd runs",
            exit_code=BackendUnreachable.exit_code,
        )
    leaderless = [each.endpoint for each in found if not each.problem and not each.has_leader]
    if leaderless:
        return fail(
            f"{what}; no leader, according to {listed(leaderless)}",
            "etcd needs a majority of its members; start the missing ones",
            exit_code=BackendUnreachable.exit_code,
        )
    if silent:
        advice = advice or "start these members, or leave them out of the address"
        return warn(f"{what}; no answer from {listed(silent)}", advice)
    return ok(what)


def pools(opened: Opened) -> Finding:
    """May we read what is there, and is all of it readable?"""
    found = [each for each in opened.pools.pools() if not is_reserved(each.type)]
    held, waiting = sum(pool.held for pool in found), sum(len(pool.queue) for pool in found)
    return ok(f"{counted(len(found), 'pool')}, {held} held, {waiting} waiting")


def copies(opened: Opened) -> Finding:
    """Is each copy of an object as the object is?"""
    found = find_astray(opened.gateway)
    if not found:
        return ok("all copies match their objects")
    shown = listed([printable(key) for key in found])
    return warn(
        f"{counted(len(found), 'key')} with a copy of another record that differs from it "
        f"(edited by hand?): {shown}",
        "run: leasectl doctor --fix",
        mend=lambda: f"repaired: {listed(mend_astray(opened.gateway)) or 'nothing'}",
    )


def events(opened: Opened) -> Finding:
    """How much of etcd's space do the events take?"""
    number, size = opened.events.volume()
    return ok(f"{counted(number, 'event')} kept, about {size / 1e6:.1f} MB")


def write_access(opened: Opened, prefix: str) -> Finding:
    """May we write below the prefix? Found out without writing anything."""
    probe(opened.gateway)
    return ok(f"allowed below {prefix}/")
