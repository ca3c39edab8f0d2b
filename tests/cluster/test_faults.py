"""A cluster that goes wrong, and participants that live with it; the history is judged after."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.participants import Habits
from tests.cluster.run import Run
from tests.cluster.schedule import plan
from tests.kit.etcd.server import EtcdServer
from tests.kit.killing import FULL_SIZE

SECONDS = 30.0
BURSTS = 4 if FULL_SIZE else 1
HURRIED = Habits(ttls=(3, 4), holds=(0.0, 0.02), long_holds=(0.0, 0.02), rests=(0.0, 0.1))


def test_whatever_goes_wrong_with_a_cluster_the_guarantees_hold(
    etcd_cluster: EtcdServer, tmp_path: Path
) -> None:
    run = Run(etcd_cluster, tmp_path / "history", Habits(ttls=(2, 3, 4)))
    report = run.under_faults(plan(1, SECONDS), participants=20, grants=20, seed=1)
    assert report.violations == []
    assert report.counts.deaths > 5
    assert len(report.counts.faults) > 8


def test_64_processes_in_4_places_share_6_resources_while_some_are_killed(
    etcd_cluster: EtcdServer, tmp_path: Path
) -> None:
    run = Run(etcd_cluster, tmp_path / "history", HURRIED)
    report = run.in_contention(participants=64, bursts=BURSTS, killed=10, grants=80, seed=64)
    assert report.violations == []
    assert report.counts.deaths == BURSTS * 10 + 16
    assert report.counts.grants > BURSTS * 40
