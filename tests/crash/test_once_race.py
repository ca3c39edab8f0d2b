"""Runs that want the same works done, with runners killed at random: one result each, for all.

With `LEASECTL_TEST_FULL_SIZE=1` 10 runs want 200 works.
"""

from __future__ import annotations

from pathlib import Path

from tests.crash.once_race import Found, Race
from tests.kit.hosts import Hosts
from tests.kit.killing import FULL_SIZE
from tests.kit.support import Cli

RUNS, KEYS = (10, 200) if FULL_SIZE else (4, 3)
TTL_SECONDS = 3 if FULL_SIZE else 10  # a busy machine renews late


def judge(found: Found) -> None:
    """What has to be so, whoever was killed when."""
    assert found.without() == []
    assert found.unequal() == []
    assert found.results() == KEYS - len(found.given_up())
    assert found.beside() == 0
    assert found.ran_in_vain() == []
    assert found.deaths() > 0


def test_on_the_embedded_pool(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "said"
    folder.mkdir()
    found = Race([cli], folder, "once", keys=KEYS, seed=5, work_seconds=0.05).go(RUNS)
    judge(found)
    if FULL_SIZE:  # a measurement, on a machine with nothing else to do
        assert max(found.takeovers(), default=0.0) < 3


def test_on_etcd(hosts: Hosts, tmp_path: Path) -> None:
    folder = tmp_path / "said"
    folder.mkdir()
    clis = [hosts.new() for _ in range(3)]
    ttl = ("--ttl", f"{TTL_SECONDS}s")
    race = Race(clis, folder, "once", keys=KEYS, seed=5, work_seconds=0.05, options=ttl)
    found = race.go(RUNS)
    judge(found)
    if FULL_SIZE:
        assert max(found.takeovers(), default=0.0) < TTL_SECONDS + 4


def test_what_would_be_found_out(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "said"
    folder.mkdir()
    race = Race([cli], folder, "nothing", keys=1, seed=5, kills=0, work_seconds=0.1)
    found = race.go(3)
    assert found.unequal() == ["key-0"]
    assert found.results() == 3
    assert found.beside() > 0
    assert found.ran_in_vain() != []
