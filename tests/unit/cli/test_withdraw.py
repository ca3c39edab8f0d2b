"""Requests that are withdrawn while they wait: ``--supersede`` and ``release --waiting``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit.etcd.server import EtcdServer
from tests.kit.support import Cli, Started
from tests.kit.waits import eventually

pytestmark = pytest.mark.once

USAGE, NO_LEASE, NOT_ALLOWED = 64, 75, 77
JOB = {"JOB_NAME": "nightly", "BUILD_ID": "7"}
OTHER = {"JOB_NAME": "other", "BUILD_ID": "1"}


def waits(cli: Cli, *options: str, **env: str) -> Started:
    before = len(cli.waiting())
    started = cli.start("acquire", "T", "-w", "10m", *options, **env)
    eventually(lambda: len(cli.waiting()) > before or started.process.poll() is not None)
    return started


@pytest.fixture(autouse=True)
def pool(cli: Cli) -> None:
    cli.pool("T", "a")
    cli.ok("acquire", "T")


class TestSupersede:
    def test_the_older_request_ends_with_75_and_says_what_superseded_it(self, cli: Cli) -> None:
        older = waits(cli, "--supersede", "pr-7", **JOB)
        unrelated = waits(cli, "--supersede", "pr-8", **JOB)
        newer = cli.start("run", "T", "--supersede", "pr-7", "--", "true", **OTHER)
        finished = older.finish()
        assert (finished.code, finished.out) == (NO_LEASE, "")
        assert "superseded by a newer request of other/1/" in finished.err
        assert "(--supersede pr-7)" in finished.err
        assert len(cli.waiting()) == 2
        cli.ok("release", "--all", "--force")
        for each in (newer, unrelated):
            each.finish()

    def test_a_key_that_can_not_be_shown_and_a_backend_without_pools_are_refused(
        self, cli: Cli
    ) -> None:
        for argv in (
            ("acquire", "T", "--supersede", ""),
            ("acquire", "T", "--supersede", "a\nb"),
            ("acquire", "T", "--supersede", "x" * 201),
            ("acquire", "T", "--label", "leasectl.supersede=x"),
            ("acquire", "T", "--supersede", "k", "--backend", "http://127.0.0.1:1"),
        ):
            assert cli(*argv).code == USAGE, argv


class TestRelease:
    def test_an_own_request_is_withdrawn_by_job_identity_or_handle(self, cli: Cli) -> None:
        for kind in ("job", "identity", "handle"):
            waiter = waits(cli, **JOB)
            ((identity,),) = cli.query("SELECT holder_identity FROM ticket")
            whose = {
                "job": "nightly/7",
                "identity": str(identity),
                "handle": str(identity).rpartition("/")[2],
            }[kind]
            withdrawn = cli("release", "--waiting", "--holder", whose, "--json", **JOB)
            assert json.loads(withdrawn.out) == {"released": [], "withdrawn": [identity]}
            finished = waiter.finish()
            assert finished.code == NO_LEASE
            assert "the request was withdrawn by nightly/7" in finished.err
        assert len(cli.held()) == 1

    def test_another_jobs_request_takes_force_and_is_told_the_reason(self, cli: Cli) -> None:
        waiter = waits(cli, **JOB)
        words = ("release", "--waiting", "--holder", "nightly/7")
        assert cli(*words, **OTHER).code == NOT_ALLOWED
        assert len(cli.waiting()) == 1
        cli.ok(*words, "--force", "--reason", "old", **OTHER)
        finished = waiter.finish()
        assert finished.code == NO_LEASE
        assert "withdrawn by other/1: old" in finished.err

    def test_nobody_who_waits_is_done(self, cli: Cli) -> None:
        done = cli("release", "--waiting", "--holder", "nightly/7")
        assert (done.code, done.out) == (0, "")
        assert "no request of nightly/7 waits" in done.err

    def test_what_makes_no_sense(self, cli: Cli) -> None:
        for argv in (
            ("--waiting",),
            ("--waiting", "--holder", "x", "--now"),
            ("--waiting", "--holder", "x", "--delay", "1m"),
            ("--waiting", "--all", "--holder", "x"),
        ):
            assert cli("release", *argv).code == USAGE, argv


def test_a_request_of_another_state_directory_ends_with_75(
    cli: Cli, tmp_path: Path, etcd: EtcdServer, prefix: str
) -> None:
    there = {"LEASECTL_BACKEND": f"{etcd.endpoints[0].replace('http', 'etcd')}{prefix}"}
    elsewhere = {**there, "LEASECTL_STATE_DIR": str(tmp_path / "elsewhere")}
    cli.ok("pool", "create", "T", "--names", "a", **there)
    cli.ok("acquire", "T", "--ttl", "1h", **there)
    older = cli.start("acquire", "T", "-w", "10m", **JOB, **elsewhere)

    def queue() -> list[object]:
        (pool,) = json.loads(cli.ok("status", "--json", **there))["pools"]
        return list(pool["queue"])

    eventually(lambda: len(queue()) == 1, what="it waits")
    cli.ok("release", "--waiting", "--holder", "nightly/7", "--force", **OTHER, **there)
    finished = older.finish()
    assert finished.code == NO_LEASE
    assert "withdrawn by other/1" in finished.err
