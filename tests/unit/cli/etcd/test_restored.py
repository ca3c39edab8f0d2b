"""An etcd that is restored from an older copy, and so has a smaller revision than before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.engines.etcd.requests import put
from leasectl.engines.facts import PoolSettings
from leasectl.model import Request
from tests.kit.etcd.server import EtcdServer
from tests.kit.hosts import Hosts
from tests.kit.relay import relay
from tests.kit.waits import eventually


@pytest.fixture
def hosts(own_etcd: EtcdServer, tmp_path: Path) -> Iterator[Hosts]:
    """State directories on a member that may be restored."""
    found = Hosts(own_etcd.endpoints[0], tmp_path)
    yield found
    found.close()


def hold(hosts: Hosts) -> None:
    hosts.access.acquire("holder", Request("T", ttl_seconds=600))


def raise_revision(hosts: Hosts) -> None:
    """Write more than happens in a test after its restore."""
    for number in range(300):
        hosts.access.gateway.commit((), [put(f"{hosts.access.keys.prefix}other", str(number))])


def test_waiter_gets_what_is_released_after_a_restore(hosts: Hosts, own_etcd: EtcdServer) -> None:
    hosts.pool("a")
    hold(hosts)
    with relay(own_etcd.endpoints[0]) as between:
        waiter = hosts.start_waiting(hosts.new(through=between.endpoint), "acquire", "-t", "T")
        copy = own_etcd.keep_copy()
        raise_revision(hosts)
        before = len(between.paths)
        hosts.access.pools.change_settings("T", PoolSettings(aging_seconds=60))
        eventually(
            lambda: "/v3/lease/keepalive" in between.paths[before:], what="the waiter has heard"
        )
        own_etcd.restore(copy)
        hosts.access.engine.free("holder")
        assert waiter.finish().handle


def test_events_go_on_after_a_restore_and_say_what_may_be_missing(
    hosts: Hosts, own_etcd: EtcdServer
) -> None:
    hosts.pool("a")
    here = hosts.new()
    here.spawn(
        ["sh", "-c", 'exec "$@" >told 2>notes', "sh", *here.command("events", "-f", "--json")]
    )
    told, notes = here.cwd / "told", here.cwd / "notes"

    def kinds() -> list[str]:
        return [json.loads(line)["kind"] for line in told.read_text().splitlines()]

    eventually(lambda: told.exists() and kinds() == ["pool made"])
    copy = own_etcd.keep_copy()
    raise_revision(hosts)
    hold(hosts)
    eventually(lambda: kinds()[1:] == ["queued", "granted"])
    own_etcd.restore(copy)
    eventually(lambda: "may be missing" in notes.read_text(), what="it has seen the restore")
    hold(hosts)
    eventually(lambda: kinds()[3:] == ["queued", "granted"])
    (note,) = (line for line in notes.read_text().splitlines() if "may be missing" in line)
    assert "restored from an older copy" in note
