"""Leases that are lost in use, and holders that are cut off: who may go on, and until when."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from tests.kit.etcd.server import EtcdServer
from tests.kit.hosts import Hosts, Script
from tests.kit.relay import Relay
from tests.kit.support import Cli, Started, since_boot
from tests.kit.waits import eventually

LOST = 79
# Whoever can't release gives that up soon.
HASTY = {"LEASECTL_RELEASE_TIMEOUT": "1s"}
# Writes down that it lives, again and again, and what it is told.
OBEDIENT = """
trap 'say told; exit 0' TERM
say begin "$LEASECTL_FENCE" "$$"
while :; do say alive; sleep 0.02; done
"""
# The same, but only KILL ends it.
STUBBORN = OBEDIENT.replace("; exit 0", "")


def start(cli: Cli, script: Script, *options: str) -> Started:
    """Start a script under a lease, and see it begin."""
    run = cli.start("run", "-t", "T", *options, "--", str(script.path))
    script.wait_for("begin")
    eventually(lambda: cli.query("SELECT 1 FROM handle WHERE guard IS NOT NULL"))
    return run


class TestInTheMiddleOfARun:
    @pytest.fixture
    def here(self, hosts: Hosts) -> Cli:
        hosts.pool("a")
        return hosts.new()

    def test_the_command_is_told_and_run_says_so(self, hosts: Hosts, here: Cli) -> None:
        script = Script(here.cwd, OBEDIENT)
        run = start(here, script, "--ttl", "3s")
        hosts.revoke_all()
        finished = run.finish()
        assert finished.code == LOST
        assert "because its lease of T was lost" in finished.err
        assert len(script.times("told")) == 1
        assert hosts.is_free(), "it isn't kept until its time would have been over"

    def test_it_is_told_of_a_force_on_another_host(self, hosts: Hosts, here: Cli) -> None:
        script = Script(here.cwd, OBEDIENT)
        run = start(here, script, "--ttl", "3s")
        hosts.new().ok("pool", "remove", "T", "--names", "a", "--force")
        assert run.finish().code == LOST
        assert len(script.times("told")) == 1
        assert hosts.access.pool().capacity == 0


class TestByForce:
    """``release --force`` on one host, of what a command on another runs under."""

    FORCE = ("release", "--names", "a", "--force", "--reason", "stuck")

    def test_the_command_is_told_at_once_and_the_next_has_the_lease_when_it_has_ended(
        self, hosts: Hosts
    ) -> None:
        hosts.pool("a")
        here, there = hosts.new(), hosts.new()
        mine = Script(here.cwd, OBEDIENT.replace("say told;", "say told; await end;"))
        theirs = Script(there.cwd, 'say begin "$LEASECTL_FENCE"')
        run = start(here, mine, "--ttl", "5m")
        following = hosts.start_waiting(there, "run", "-q", "-t", "T", "--", str(theirs.path))
        forced = there(*self.FORCE)
        assert (forced.code, forced.out) == (0, "a\n")
        assert "it is free when its holder gives it up, at the latest in " in forced.err
        mine.wait_for("told")  # long before it renews
        assert theirs.said == []
        mine.tell("end")
        finished = run.finish()
        assert finished.code == LOST
        assert "(released by force by " in finished.err
        assert ": stuck); " in finished.err
        assert following.finish().code == 0
        _check_order(mine, theirs)
        assert hosts.is_free()

    def test_run_killed_before_it_has_confirmed_the_next_waits_for_its_deadline(
        self, hosts: Hosts
    ) -> None:
        hosts.pool("a")
        here, there = hosts.new(), hosts.new()
        mine, theirs = Script(here.cwd, STUBBORN), Script(there.cwd, "say begin")
        run = start(here, mine, "--ttl", "5s")
        eventually(lambda: here.query("SELECT 1 FROM handle WHERE waiter IS NULL"))
        ((renewed,),) = here.query("SELECT renew_time FROM lease")
        deadline = since_boot(float(str(renewed))) + 5
        run.process.send_signal(signal.SIGSTOP)
        following = hosts.start_waiting(there, "run", "-q", "-t", "T", "--", str(theirs.path))
        there.ok(*self.FORCE)
        run.process.kill()
        assert following.finish().code == 0
        assert theirs.times("begin")[0] >= deadline - 0.05
        os.kill(int(mine.said[0].words[2]), signal.SIGKILL)

    def test_a_script_without_run_learns_of_it_when_it_renews(self, hosts: Hosts) -> None:
        hosts.pool("a", "b")
        here, there = hosts.new(), hosts.new()
        held = here("acquire", "-t", "T", "-c", "2", "--ttl", "1m").handle
        there.ok(*self.FORCE)
        again = there(*self.FORCE)
        assert " had already lost a (released by force by " in again.err
        assert f"run on {socket.gethostname()}: leasectl release T-" in again.err
        here.ok("status")  # which may be who finds out
        for options in ((), ("--ttl", "2m")):
            refused = here("renew", "--handle", held, *options)
            assert refused.code == LOST
            assert "has lost its lease (released by force by " in refused.err
            assert ": stuck); get a new one with" in refused.err
        shown = here("cat", "--handle", held)
        assert (shown.code, shown.out) == (LOST, "b\n")
        assert hosts.held() == ["a", "b"]
        assert here.ok("release", "--handle", held) == "b\n"
        assert hosts.is_free(), "whoever releases knows"


def test_renew_says_what_to_do_about_a_lost_lease(hosts: Hosts) -> None:
    hosts.pool("a")
    here = hosts.new()
    held = here("acquire", "-t", "T").handle
    hosts.revoke_all()
    refused = here("renew", "--handle", held)
    assert (refused.code, refused.out) == (LOST, "")
    assert f"leasectl reacquire --handle {held}" in refused.err
    shown = here("cat", "--handle", held)
    assert (shown.code, shown.out) == (LOST, "")
    assert Path(held).read_text() == ""
    assert here.ok("release", "--handle", held) == ""


class TestCutOff:
    """A holder that can't renew has ended before anybody else is granted its lease."""

    @pytest.mark.parametrize("body", [OBEDIENT, STUBBORN], ids=["obedient", "stubborn"])
    def test_by_the_network(self, hosts: Hosts, network: Relay, body: str) -> None:
        hosts.pool("a")
        here, there = hosts.new(through=network.endpoint, **HASTY), hosts.new()
        mine, theirs = Script(here.cwd, body), Script(there.cwd, 'say begin "$LEASECTL_FENCE"')
        run = start(here, mine, "--ttl", "3s")
        other = hosts.start_waiting(there, "run", "-q", "-t", "T", "--", str(theirs.path))
        network.cut()
        assert other.finish().code == 0
        assert run.finish().code == LOST
        _check_order(mine, theirs)
        network.mend()
        eventually(lambda: hosts.is_free() and not here.keepers())

    def test_by_a_server_that_hangs(self, own_etcd: EtcdServer, tmp_path: Path) -> None:
        hosts = Hosts(own_etcd.endpoints[0], tmp_path)
        hosts.pool("a")
        here, there = hosts.new(**HASTY), hosts.new()
        mine, theirs = Script(here.cwd, STUBBORN), Script(there.cwd, 'say begin "$LEASECTL_FENCE"')
        try:
            run = start(here, mine, "--ttl", "3s")
            other = hosts.start_waiting(there, "run", "-q", "-t", "T", "--", str(theirs.path))
            own_etcd.signal(0, signal.SIGSTOP)
            eventually(lambda: not _lives(run), what="the command has ended, and run")
            own_etcd.signal(0, signal.SIGCONT)
            assert run.finish().code == LOST
            assert other.finish().code == 0
            _check_order(mine, theirs)
        finally:
            own_etcd.signal(0, signal.SIGCONT)
            hosts.close()


def _lives(started: Started) -> bool:
    return started.process.poll() is None


def _check_order(mine: Script, theirs: Script) -> None:
    """The one whose lease it was had been told, and was gone, before the other began."""
    told, alive = mine.times("told"), mine.times("alive")
    (begin,) = theirs.times("begin")
    assert len(told) == 1
    assert told[0] <= begin
    assert alive[-1] <= begin
    fences = [int(script.said[0].words[1]) for script in (mine, theirs)]
    assert fences[0] < fences[1]
