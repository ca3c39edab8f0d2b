"""Names that stay in pools on a server for as long as processes of this machine live."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from leasectl.engines.rules.membership import Lifetime, Member
from leasectl.leases.service import Service
from leasectl.pools.joining import join
from leasectl.system.process import identify
from tests.kit.hosts import Hosts
from tests.kit.hosts import hosts as hosts
from tests.kit.support import Cli, Started
from tests.kit.waits import eventually

# Servers are there on one Python only: see scripts/test.
pytestmark = pytest.mark.once

TTL_SECONDS = 6.0


@pytest.fixture
def host(hosts: Hosts) -> Cli:
    hosts.pool("t-1")
    return hosts.new()


@contextmanager
def on(host: Cli) -> Iterator[Service]:
    with host.service(backend=host.env["LEASECTL_BACKEND"]) as service:
        yield service


def joined(host: Cli, *, ttl_seconds: float = TTL_SECONDS) -> Started:
    """Have a name join for as long as a process lives, which is returned."""
    process = host.spawn(["sleep", "1000"])
    with on(host) as service:
        join(service, "T", "n", lives=Lifetime(identify(process.pid), ttl_seconds))
    return process


def the_member(host: Cli) -> Member:
    with on(host) as service:
        (member,) = service.members.members(["n"])
        return member


def test_are_renewed_until_their_process_ends(host: Cli) -> None:
    process = joined(host)
    first = the_member(host).joined
    eventually(lambda: the_member(host).joined >= first + 2, what="renewals")
    assert the_member(host).pool == "T"
    process.kill()
    eventually(lambda: the_member(host).pool is None)
    eventually(lambda: host.query("SELECT * FROM stay") == [])
    eventually(lambda: host.keepers() == [], what="its keeper ends")


def test_of_what_was_moved_or_has_left_are_forgotten(host: Cli) -> None:
    joined(host)
    host.ok("pool", "create", "U", "--names", "u-1")
    host.ok("pool", "move", "--names", "n", "--to", "U")
    eventually(lambda: host.query("SELECT * FROM stay") == [])
    assert the_member(host) == Member("n", "U", joined=the_member(host).joined)
    joined_again = host.spawn(["sleep", "1000"])
    host.ok("pool", "join", "U", "--name", "n", "--while-pid", str(joined_again.pid))
    assert len(host.query("SELECT * FROM stay")) == 1
    host.ok("pool", "leave", "U", "--name", "n")
    assert host.query("SELECT * FROM stay") == []


def test_that_end_while_they_are_held_take_no_new_holder(host: Cli) -> None:
    process = joined(host)
    handle = host("acquire", "T", "--name", "n").handle
    process.kill()
    eventually(lambda: the_member(host).leaves)
    host.ok("release", "--handle", handle)
    assert the_member(host) == Member("n")
