"""``pool``, ``status`` and ``serve`` on etcd, from several state directories."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path

import pytest

from tests.kit.hosts import Hosts, fence
from tests.kit.serving import Serving
from tests.kit.support import Cli

USAGE, NOT_FOUND, NOT_ALLOWED = 64, 66, 77


@pytest.fixture
def here(hosts: Hosts) -> Cli:
    return hosts.new()


def names(hosts: Hosts, pool_type: str = "T") -> list[str]:
    return [each.name for each in hosts.access.pool(pool_type).resources]


def seconds_of(time: str) -> float:
    return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()


class TestStatusFromElsewhere:
    def test_in_json(self, hosts: Hosts, here: Cli) -> None:
        here.ok("pool", "create", "T", "--names", "a,b")
        asked = ("--release-after", "20m", "--guard-pid", str(os.getpid()), "--label", "team=x")
        held = here("acquire", "-t", "T", "--ttl", "30s", *asked).handle
        there = hosts.new()
        there.ok("acquire", "-t", "T")
        waits_for = ("--name", "b", "--label", "why=test")
        waiter = hosts.start_waiting(here, "acquire", "-q", "-t", "T", *waits_for)
        found = json.loads(there.ok("status", "--json"))
        (pool,) = found["pools"]
        foreign, own = pool["resources"]
        assert found["backend"] == hosts.url
        assert (pool["held"], pool["free"], pool["waiting"]) == (2, 0, 1)
        assert foreign["holder_identity"].endswith(os.path.basename(held))
        assert foreign["host"] == foreign["holder_identity"].split("/")[-2] == own["host"]
        assert 0 < foreign["expires_in_seconds"] <= 30 < own["expires_in_seconds"] <= 60
        assert foreign["fence"] == fence(here, held)
        assert (foreign["pid"], foreign["guard"]) == (os.getpid(), "unknown")
        assert foreign["labels"] == {"team": "x"}
        acquired, release = (seconds_of(foreign[f"{each}_time"]) for each in ("acquire", "release"))
        assert release - acquired == pytest.approx(1200)
        (entry,) = pool["queue"]
        assert (entry["pid"], entry["count"], entry["name"]) == (waiter.process.pid, 1, "b")
        assert entry["labels"] == {"why": "test"}
        waiter.kill()


def test_servers_on_two_hosts_hand_out_the_same_pools(hosts: Hosts, here: Cli) -> None:
    hosts.pool("a")
    there = hosts.new()
    one, other = Serving(here), Serving(there)
    clients: list[Cli] = []
    for number, serving in enumerate((one, one, other)):
        client = hosts.new(LEASECTL_BACKEND=serving.url, JOB_NAME="job", BUILD_ID=str(number))
        clients.append(client)
    held = clients[0]("acquire", "-t", "T", "--output", "names").out
    assert held == "a\n"
    waiters = []
    for client in clients[1:]:
        waiters.append(hosts.start_waiting(client, "acquire", "-q", "-t", "T"))
    clients[0].ok("release", "--all")
    first = waiters[0].finish()
    assert Path(first.handle).read_text() == "a"
    clients[1].ok("release", "--handle", first.handle)
    second = waiters[1].finish()
    assert Path(second.handle).read_text() == "a"
    clients[2].ok("release", "--handle", second.handle)
    assert hosts.is_free()
