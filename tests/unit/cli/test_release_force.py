"""``leasectl release --force``: what somebody else holds, while a command may still use it."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.kit.hosts import Script
from tests.kit.support import Cli, Started, kill, stop
from tests.kit.waits import eventually

pytestmark = pytest.mark.once

USAGE, NOT_FOUND, NO_LEASE, NOT_ALLOWED, LOST = 64, 66, 75, 77, 79
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
    started = cli.start("acquire", "-q", "-t", "T", "-w", "10m", "--output", "names")
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
        assert (
            "it is free when the leasectl run or Python program that holds it gives it up"
            in forced.err
        )
        script.wait_for("told")
        assert not is_granted(following)
        assert resource(cli)["state"] == "ended"
        assert "released by force by" in resource(cli)["ended"]
        script.tell("end")
        finished = run.finish()
        assert finished.code == LOST
        assert "lost the lease of a (released by force by " in finished.err
        assert ": stuck); " in finished.err
        assert following.finish().out == "a\n"
        assert script.times("over")

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
        shown = cli("cat", "--handle", held)
        assert (shown.code, shown.out) == (LOST, "")
        assert cli.ok("release", "--handle", held) == ""
        assert len(cli.held()) == 1  # which is the other's

    def test_with_a_ttl_it_is_kept_until_its_holder_gives_it_up(self, cli: Cli) -> None:
        held = cli("acquire", "-t", "T", "--ttl", "1h", **JOB).handle
        following = waiter(cli)
        assert "when its holder gives it up, at the latest in 59m" in cli(*FORCE).err
        again = cli(*FORCE)
        assert (again.code, again.out) == (0, "")
        assert "had already lost a (released by force by " in again.err
        assert f": leasectl release {os.path.basename(held)}; if the holder's machine" in again.err
        assert resource(cli)["guard"] == "none"
        assert not is_granted(following)
        cli.ok("release", "--handle", held)
        assert following.finish().out == "a\n"

    def test_reacquired_it_gives_up_what_was_taken(self, cli: Cli) -> None:
        held = cli("acquire", "-t", "T", "--ttl", "1h").handle
        cli.ok(*FORCE)
        assert cli.ok("reacquire", "--handle", held, "-w", "0").rstrip() == held
        assert cli.ok("cat", "--handle", held) == "a\n"
        assert cli("renew", "--handle", held).code == 0


class TestNow:
    """``--force --now``: a lease whose holder can't give it up."""

    NOW = (*FORCE, "--now")

    def test_a_lease_with_a_long_ttl_is_free_at_once_with_a_warning(self, cli: Cli) -> None:
        held = cli("acquire", "-t", "T", "--ttl", "2h", **JOB).handle
        ((fence,),) = cli.query("SELECT fence FROM resource")
        following = waiter(cli)
        assert "with: leasectl release --names a --force --now" in cli(*FORCE).err
        assert not is_granted(following)
        forced = cli(*self.NOW)
        assert (forced.code, forced.out) == (0, "a\n")
        assert "it is free now. Warning: its former holder" in forced.err
        assert f"have the resource reject tokens up to {fence}" in forced.err
        assert following.finish().out == "a\n"
        assert cli("renew", held).code == LOST
        assert cli.ok("release", held) == ""
        assert list(cli.held()) == ["a"]  # by the next

    def test_a_lease_under_a_stopped_run_is_free_at_once(self, cli: Cli) -> None:
        script = Script(cli.cwd, STUBBORN)
        run, following = start(cli, script), waiter(cli)
        stop(run.process.pid, cli.state_dir)
        assert "--force --now" in cli(*FORCE).err
        assert not is_granted(following)
        assert cli.ok(*self.NOW) == "a\n"
        assert following.finish().out == "a\n"
        os.kill(run.process.pid, signal.SIGCONT)
        script.wait_for("told")
        script.tell("end")
        assert run.finish().code == LOST
        assert list(cli.held()) == ["a"]


class TestWhatIsRefused:
    def test_what_makes_no_sense(self, cli: Cli) -> None:
        cli.ok("acquire", "-t", "T")
        by_force = ("--names", "a", "--force")
        for argv in (
            ("--all", "--force", "--delay", "1m"),
            ("--names", "a", "--reason", "x"),
            ("--names", "a", "--now"),
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


class TestEverything:
    """``release --all`` in a state directory that several jobs share."""

    def test_release_all_leaves_other_jobs_alone_and_says_so(self, cli: Cli) -> None:
        script = Script(cli.cwd, OBEDIENT)
        run = start(cli, script)
        released = cli("release", "--all", JOB_NAME="other", BUILD_ID="1")
        assert (released.code, released.out) == (0, "")
        assert "left 1 handle that this job may not release" in released.err
        assert "leasectl release --all --force" in released.err
        assert list(cli.held()) == ["a"]
        assert cli("release", "--all", JOB_NAME="nightly", BUILD_ID="8").out == ""
        script.tell("end")
        run.process.terminate()
        run.finish()

    def test_force_releases_own_and_others_and_withdraws_waiters(self, cli: Cli) -> None:
        cli.pool("U", "b")
        cli.ok("acquire", "-t", "T", **JOB)
        cli.ok("acquire", "-t", "U")
        waiting = cli.start("acquire", "-t", "T", "-w", "10m", **JOB)
        eventually(lambda: len(cli.waiting()) == 1, what="a waiter of the other job")
        forced = cli("release", "--all", "--force", "--json")
        assert (forced.code, sorted(json.loads(forced.out)["released"])) == (0, ["a", "b"])
        assert waiting.finish().code == NO_LEASE
        assert cli.held() == {}


class TestCompareAndRelease:
    """``--holder`` and ``--fence``: a release only of the lease that was looked at."""

    def look(self, cli: Cli) -> tuple[str, str]:
        (lease,) = json.loads(cli.ok("status", "--json"))["pools"][0]["resources"]
        return lease["holder_identity"], str(lease["fence"])

    def granted_to_another_since(self, cli: Cli) -> tuple[str, str]:
        """What was seen of a lease; another job has one on the same resource by now."""
        handle = cli("acquire", "-t", "T", **JOB).handle
        seen = self.look(cli)
        cli.ok("release", "--handle", handle)
        cli.ok("acquire", "-t", "T", JOB_NAME="other", BUILD_ID="1")
        return seen

    def test_a_lease_granted_since_the_look_is_not_released(self, cli: Cli) -> None:
        identity, fence = self.granted_to_another_since(cli)
        job, _, handle = identity.rsplit("/", 2)
        other = {"JOB_NAME": "other", "BUILD_ID": "1"}
        for option in (
            ("--holder", identity),
            ("--holder", job),
            ("--holder", handle),
            ("--fence", fence),
        ):
            for force, env in (((), other), (("--force",), {})):
                refused = cli("release", "--names", "a", *option, *force, **env)
                assert (refused.code, refused.out) == (NOT_ALLOWED, ""), (option, force)
                assert "a is held by other/1/" in refused.err
        assert list(cli.held()) == ["a"]

    @pytest.mark.parametrize("force", [(), ("--force",)], ids=["own", "by force"])
    def test_the_lease_that_was_looked_at_is_released(
        self, cli: Cli, force: tuple[str, ...]
    ) -> None:
        cli.ok("acquire", "-t", "T", **JOB)
        identity, fence = self.look(cli)
        option = ("--holder", identity, "--fence", fence)
        assert cli.ok("release", "--names", "a", *option, *force, **JOB) == "a\n"

    def test_names_are_needed_and_one_for_a_fence(self, cli: Cli) -> None:
        for argv in (("--all", "--holder", "x"), ("--names", "a,b", "--fence", "1")):
            assert cli("release", *argv).code == USAGE, argv


def test_cat_of_a_lost_handle_exits_with_79_and_says_who_took_it(cli: Cli) -> None:
    handle = cli("acquire", "-t", "T", **JOB).handle
    cli.ok(*FORCE, "--reason", "stuck")
    for options in ((), ("--format", "csv"), ("--json",), ("--property", "k")):
        shown = cli("cat", handle, *options)
        assert shown.code == LOST
        assert ": stuck); get a new one with: leasectl reacquire --handle " in shown.err
        assert shown.out == "" or json.loads(shown.out)["leases"] == []


def test_a_grant_for_either_type_says_which_and_that_one_was_asked_for(cli: Cli) -> None:
    cli.pool("U", "b")
    acquired = cli("acquire", "T", "U")
    assert acquired.code == 0
    told = "the lease is of T; either of T or U was asked for"
    assert told in acquired.err
    assert cli("acquire", "-q", "-t", "T", "-t", "U").err == ""
