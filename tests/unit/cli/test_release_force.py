"""``leasectl release --force``: what somebody else holds, while a command may still use it."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from leasectl.system.clock import boottime_seconds
from tests.kit.hosts import Script
from tests.kit.support import Cli, Started, eventually, kill, stop

pytestmark = pytest.mark.once

USAGE, NOT_FOUND, NOT_ALLOWED, LOST = 64, 66, 77, 79
FORCE = ("release", "--names", "a", "--force")
JOB = {"JOB_NAME": "nightly", "BUILD_ID": "7"}
OBEDIENT = """
trap 'say told; await end; say over; exit 0' TERM
say begin "$$"
while :; do sleep 0.02; done
"""
STUBBORN = """
trap 'say told' TERM
say begin "$$"
until [[ -e $0.end ]]; do say alive; sleep 0.02; done
"""


@pytest.fixture(autouse=True)
def pool(cli: Cli) -> None:
    cli.pool("T", "a")


def start(cli: Cli, script: Script, *options: str) -> Started:
    """Start a script under a lease, and see it begin."""
    run = cli.start("run", "-t", "T", *options, "--", str(script.path), **JOB)
    script.wait_for("begin")
    return run


def waiter(cli: Cli) -> Started:
    started = cli.start("acquire", "-q", "-t", "T", "-w", "30s", "--output", "names")
    eventually(lambda: len(cli.waiting()) == 1, what="somebody waits")
    return started


def is_granted(started: Started) -> bool:
    return started.process.poll() is not None


def resource(cli: Cli) -> Any:
    (pool,) = json.loads(cli.ok("status", "--json"))["pools"]
    return pool["resources"][0]


class TestARun:
    @pytest.mark.parametrize("options", [(), ("--ttl", "1h")], ids=["no ttl", "ttl"])
    def test_the_next_grant_comes_when_its_command_has_ended(
        self, cli: Cli, options: tuple[str, ...]
    ) -> None:
        script = Script(cli.cwd, OBEDIENT)
        run, following = start(cli, script, *options), waiter(cli)
        forced = cli(*FORCE, "--reason", "stuck")
        assert (forced.code, forced.out) == (0, "a\n")
        assert "it is free when run has ended the command" in forced.err
        script.wait_for("told")
        assert not is_granted(following)
        assert resource(cli)["state"] == "ended"
        assert "released by force by" in resource(cli)["ended"]
        script.tell("end")
        finished = run.finish()
        assert finished.code == LOST
        assert "lost the lease on a (released by force by " in finished.err
        assert ": stuck): " in finished.err
        assert following.finish().out == "a\n"
        assert script.times("over")

    def test_one_that_goes_on_without_its_lease_keeps_nobody_waiting(self, cli: Cli) -> None:
        script = Script(cli.cwd, "say begin; await end")
        run = start(cli, script, "--on-lost", "ignore")
        following = waiter(cli)
        cli.ok(*FORCE)
        assert following.finish().out == "a\n"
        script.tell("end")
        assert run.finish().code == 0

    def test_killed_before_it_has_confirmed_the_next_grant_waits_for_its_command(
        self, cli: Cli
    ) -> None:
        script = Script(cli.cwd, STUBBORN)
        run, following = start(cli, script), waiter(cli)
        cli.ok(*FORCE)
        script.wait_for("told")
        kill(run.process.pid)
        cli.ok("status")  # which gives back what the dead have left, but not this
        assert not is_granted(following)
        os.kill(int(script.said[0].words[1]), signal.SIGKILL)
        assert following.finish().out == "a\n"

    def test_killed_it_ends_nothing_so_force_once_more_frees_at_once(self, cli: Cli) -> None:
        script = Script(cli.cwd, STUBBORN)
        run = start(cli, script)
        cli.ok(*FORCE)
        assert cli.ok(*FORCE) == ""  # run is at it
        kill(run.process.pid)
        following = waiter(cli)
        assert cli.ok(*FORCE) == "a\n"
        assert following.finish().out == "a\n"
        os.kill(int(script.said[0].words[1]), signal.SIGKILL)

    def test_killed_with_a_ttl_the_next_grant_comes_at_the_end_of_that(self, cli: Cli) -> None:
        script = Script(cli.cwd, STUBBORN)
        run, following = start(cli, script, "--ttl", "5s"), waiter(cli)
        ((expires_at,),) = cli.query("SELECT expires_at FROM resource")
        stop(run.process.pid, cli.state_dir)
        cli.ok(*FORCE)
        kill(run.process.pid)
        assert following.finish().out == "a\n"
        assert boottime_seconds() >= float(str(expires_at))
        os.kill(int(script.said[0].words[1]), signal.SIGKILL)


class TestAHandle:
    def test_without_run_and_ttl_it_is_free_at_once_and_the_queue_is_kept(self, cli: Cli) -> None:
        held = cli("acquire", "-t", "T", "--guard-pid", str(os.getpid()), **JOB).handle
        following = waiter(cli)
        forced = cli(*FORCE)
        assert (forced.code, forced.out) == (0, "a\n")
        assert "took a from nightly/7/" in forced.err
        assert "it is free" in forced.err
        assert following.finish().out == "a\n"
        lost = cli("renew", "--handle", held)
        assert lost.code == LOST
        assert "(released by force by " in lost.err
        assert cli.ok("cat", "--handle", held) == ""
        assert cli.ok("release", "--handle", held) == ""
        assert len(cli.held()) == 1  # which is the other's

    def test_with_a_ttl_it_is_kept_until_its_holder_gives_it_up(self, cli: Cli) -> None:
        held = cli("acquire", "-t", "T", "--ttl", "1h", **JOB).handle
        following = waiter(cli)
        assert "when its holder gives it up, at the latest in 59m" in (forced := cli(*FORCE).err)
        assert "UTC; sooner, with: leasectl release T-" in forced
        again = cli(*FORCE)
        assert (again.code, again.out) == (0, "")
        assert "a of nightly/7/" in again.err
        assert " had ended already (released by force by " in again.err
        assert f"; sooner, with: leasectl release {os.path.basename(held)} (on " in again.err
        assert resource(cli)["guard"] == "none"
        assert not is_granted(following)
        cli.ok("release", "--handle", held)
        assert following.finish().out == "a\n"

    def test_or_its_guard_has_ended(self, cli: Cli) -> None:
        guard = cli.spawn(["sleep", "600"])
        cli.ok("acquire", "-t", "T", "--ttl", "1h", "--guard-pid", str(guard.pid))
        following = waiter(cli)
        cli.ok(*FORCE)
        assert (resource(cli)["guard"], resource(cli)["guard_pid"]) == ("here", guard.pid)
        assert not is_granted(following)
        guard.kill()
        assert following.finish().out == "a\n"

    def test_reacquired_it_gives_up_what_was_taken(self, cli: Cli) -> None:
        held = cli("acquire", "-t", "T", "--ttl", "1h").handle
        cli.ok(*FORCE)
        assert cli.ok("reacquire", "--handle", held, "-w", "0").rstrip() == held
        assert cli.ok("cat", "--handle", held) == "a\n"
        assert cli("renew", "--handle", held).code == 0

    def test_doctor_finds_nothing_wrong_with_what_is_kept(self, cli: Cli) -> None:
        cli.ok("acquire", "-t", "T", "--ttl", "1h")
        cli.ok(*FORCE)
        assert resource(cli)["state"] == "ended"
        report = json.loads(cli.ok("doctor", "--json"))
        assert {each["status"] for each in report["checks"]} == {"ok"}


class TestWhatIsRefused:
    def test_another_jobs_name_without_force_says_how(self, cli: Cli) -> None:
        cli.ok("acquire", "-t", "T", **JOB)
        refused = cli("release", "--names", "a", JOB_NAME="other", BUILD_ID="1")
        assert (refused.code, refused.out) == (NOT_ALLOWED, "")
        assert "leasectl release --names a --force" in refused.err
        assert len(cli.held()) == 1

    def test_what_makes_no_sense(self, cli: Cli) -> None:
        cli.ok("acquire", "-t", "T")
        by_force = ("--names", "a", "--force")
        for argv in (
            ("--all", "--force"),
            ("--names", "a", "--reason", "x"),
            (*by_force, "--delay", "1m"),
            (*by_force, "--reason", "two\nlines"),
            (*by_force, "--reason", "\x1b[2J"),
            (*by_force, "--reason", "\u202egnp"),
            (*by_force, "--reason", "x" * 201),
            (*by_force, "--backend", "none:"),
        ):
            assert cli("release", *argv).code == USAGE, argv
        assert len(cli.held()) == 1

    def test_an_unknown_name_releases_nothing(self, cli: Cli) -> None:
        cli.ok("acquire", "-t", "T")
        assert cli("release", "--names", "a,b", "--force").code == NOT_FOUND
        assert len(cli.held()) == 1

    def test_what_is_free_stays_so_and_that_is_said(self, cli: Cli) -> None:
        finished = cli(*FORCE)
        assert (finished.code, finished.out) == (0, "")
        assert "nobody held a;" in finished.err
