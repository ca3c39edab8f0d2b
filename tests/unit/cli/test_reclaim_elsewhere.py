"""A holder on one host whom a reclaim on another asks to give something back."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from leasectl.engines.kubernetes.names import NOTE
from tests.kit.hosts import Hosts, Script
from tests.kit.hosts import hosts as hosts
from tests.kit.kubernetes.history import LeaseHistory
from tests.kit.kubernetes.hosts import KubernetesHosts
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.relay import Relay
from tests.kit.support import Cli, Started
from tests.kit.waits import eventually

RECLAIM = ("reclaim", "T", "--delay", "0", "-w", "10m", "-q")
# For what isn't to be had.
IN_VAIN = ("reclaim", "T", "--delay", "0", "-w", "20s", "-q")
ALL_SIX = ("reclaim", "T", "--delay", "0", "-q", "--excess", "6")
TOO_FEW = 75
# Servers are there on one Python only: see scripts/test.
pytestmark = pytest.mark.once


@pytest.fixture
def here(hosts: Hosts) -> Cli:
    hosts.pool("a", "b")
    return hosts.new()


def names_of(here: Cli, handle: str) -> list[str]:
    return Path(handle).read_text().split()


def start(here: Cli, *options: str) -> tuple[Started, Script]:
    """A command under both leases, which says what is left of them when it is told to end."""
    script = Script(here.cwd, 'say begin; await end; say left $(cat "$LEASECTL_HANDLE")')
    run = here.start("run", "T", "-c", "2", *options, "--", str(script.path))
    script.wait_for("begin")
    eventually(lambda: here.query("SELECT 1 FROM handle WHERE guard IS NOT NULL"))
    return run, script


class TestOfARun:
    def test_it_answers_at_once_and_goes_on_with_the_rest(self, hosts: Hosts, here: Cli) -> None:
        run, script = start(here, "--ttl", "5m", "--on-reclaim", "release")
        assert hosts.new().ok(*RECLAIM, "--names", "a") == "a\n"  # long before it renews
        eventually(lambda: here.query("SELECT name FROM lease") == [("b",)])
        script.tell("end")
        assert run.finish().code == 0
        assert script.said[-1].words == ("left", "b")
        assert hosts.is_free()

    def test_without_any_of_its_lease_it_goes_on_to_its_end(self, hosts: Hosts, here: Cli) -> None:
        run, script = start(here, "--ttl", "5m", "--on-reclaim", "release", "--on-lost", "kill")
        assert sorted(hosts.new().ok(*RECLAIM, "--excess", "2").split()) == ["a", "b"]
        eventually(lambda: here.query("SELECT state FROM handle") == [("released",)])
        script.tell("end")
        assert run.finish().code == 0

    def test_a_command_decides(self, hosts: Hosts, here: Cli) -> None:
        decides = 'echo "asked for $@"; [ "$@" = a ]'
        run, script = start(here, "--ttl", "5m", "--on-reclaim-command", decides)
        there = hosts.new()
        assert there(*IN_VAIN, "--names", "b").code == TOO_FEW
        assert there.ok(*RECLAIM, "--names", "a") == "a\n"
        script.tell("end")
        finished = run.finish()
        assert (finished.code, finished.out) == (0, "")
        assert finished.err.splitlines() == ["asked for b", "asked for a"]


class TestOfAHandle:
    def test_the_keeper_answers_with_its_next_heartbeat(self, hosts: Hosts, here: Cli) -> None:
        guarded = ("--guard-pid", str(os.getpid()), "--ttl", "6s")
        held = here.ok("acquire", "T", "-c", "2", *guarded, "--on-reclaim", "release").rstrip()
        here.ok("use", held, "--name", "b")
        assert hosts.new().ok(*RECLAIM, "--names", "a") == "a\n"
        eventually(lambda: names_of(here, held) == ["b"])
        assert here("renew", held).code == 0, "it has lost nothing"
        assert here("use", held, "--name", "a").code == 77
        here.ok("reacquire", held, "-w", "10m")
        assert sorted(names_of(here, held)) == ["a", "b"]

    def test_its_script_answers(self, hosts: Hosts, here: Cli) -> None:
        held = here.ok("acquire", "T", "-c", "2", "--ttl", "5m", "--on-reclaim", "answer").rstrip()
        reclaim = hosts.new().start(*IN_VAIN, "--names", "a,b")
        eventually(lambda: len(json.loads(here.ok("marks", held, "--json"))) == 2)
        here.ok("use", held, "--name", "b")
        assert here.ok("answer", held, "--ready") == "a\n"
        assert here("use", held, "--name", "a").code == 77
        assert here.ok("answer", held, "--keep", "--names", "b") == "b\n"
        assert reclaim.finish().code == TOO_FEW
        # Nobody renews it; so who looks finds out what has been taken.
        here.ok("marks", held)
        assert names_of(here, held) == ["b"]

    def test_who_takes_back_in_its_own_state_directory_tells_it(self, here: Cli) -> None:
        held = here.ok("acquire", "T", "-c", "2", "--ttl", "5m", "--on-reclaim", "answer").rstrip()
        reclaim = here.start(*RECLAIM, "--names", "a")
        eventually(lambda: len(json.loads(here.ok("marks", held, "--json"))) == 1)
        here.ok("answer", held, "--ready")
        assert reclaim.finish().code == 0
        assert names_of(here, held) == ["b"]
        assert here.query("SELECT * FROM mark_seen") == []

    def test_a_use_asks_no_server(self, hosts: Hosts, between: Relay) -> None:
        hosts.pool("a")
        here = hosts.new(through=between.endpoint, LEASECTL_RELEASE_TIMEOUT="1s")
        held = here.ok("acquire", "T", "--ttl", "5m").rstrip()
        asked = len(between.paths)
        here.ok("use", held, "--name", "a")
        assert len(between.paths) == asked
        between.cut()
        here.ok("unuse", held, "--name", "a")
        here.ok("use", held, "--name", "a")
        assert here("marks", held).code == 69


class TestOfALeaseThatNobodyWatches:
    def test_who_acquires_is_told_that_nobody_answers(self, hosts: Hosts, here: Cli) -> None:
        ready = ("acquire", "T", "--on-reclaim", "release")
        guard = ("--guard-pid", str(os.getpid()))
        said = here(*ready, "--ttl", "1m", "-c", "2").err
        assert "--on-reclaim has no effect" in said and "--guard-pid" in said
        assert said.count("\n") == 1
        for told in ((*guard,), ("--ttl", "1m", *guard), ("--ttl", "1m", "-q"), ()):
            finished = here(*ready, *told, "-w", "0")
            assert finished.code == 75
            assert "has no effect" not in finished.err


def state_in(raw: dict[str, Any]) -> str:
    """What the mark on a Lease says; empty without one."""
    note = raw["metadata"]["annotations"].get(NOTE)
    return "" if note is None else str(json.loads(json.loads(note)["text"])["state"])


class TestWritesOnKubernetes:
    """Each write of a Lease is an event for all who watch it."""

    NAMES = tuple("abcdef")

    def writes(self, history: LeaseHistory) -> dict[str, list[dict[str, Any]]]:
        """All writes of each resource's Lease since the history began, as they left it."""
        found: dict[str, list[dict[str, Any]]] = {}
        for _, (name, raw) in history.upto_now():
            if name in self.NAMES and raw is not None:
                found.setdefault(name, []).append(raw)
        return found

    def test_a_run_that_answers_writes_each_lease_once(
        self, namespace: Namespace, tmp_path: Path
    ) -> None:
        hosts = KubernetesHosts(namespace, tmp_path)
        hosts.pool(*self.NAMES)
        here = hosts.new()
        script = Script(here.cwd, "say begin; await end")
        run = here.start("run", "T", "-c", "6", "--ttl", "5m", "--", str(script.path))
        script.wait_for("begin")
        eventually(lambda: here.query("SELECT 1 FROM handle WHERE guard IS NOT NULL"))
        history = LeaseHistory(namespace)
        assert hosts.new()(*ALL_SIX, "-w", "3s").code == TOO_FEW
        writes = self.writes(history)
        for each in writes.values():
            states = [state_in(raw) for raw in each]
            assert 0 < states.count("keep") <= states.count("marked"), "an answer is one write"
            assert len({raw["spec"]["renewTime"] for raw in each}) == 1, "nothing is renewed"
        script.tell("end")
        assert run.finish().code == 0
        hosts.close()

    def test_a_heartbeat_that_answers_writes_each_lease_once(
        self, namespace: Namespace, tmp_path: Path
    ) -> None:
        hosts = KubernetesHosts(namespace, tmp_path)
        hosts.pool(*self.NAMES)
        here = hosts.new()
        guarded = ("--guard-pid", str(os.getpid()), "--ttl", "15s")
        here.ok("acquire", "T", "-c", "6", *guarded, "--on-reclaim", "keep")
        history = LeaseHistory(namespace)
        reclaim = hosts.new().start(*ALL_SIX, "-w", "10m")

        def answers() -> list[bool]:
            """Of each answer whether its write has also renewed."""
            return [
                before["spec"]["renewTime"] < raw["spec"]["renewTime"]
                for each in self.writes(history).values()
                for before, raw in zip(each, each[1:])
                if state_in(raw) == "keep"
            ]

        eventually(lambda: len(answers()) >= len(self.NAMES), what="all are answered")
        # Those that took a twelfth of the ttl came after a renewal.
        assert any(answers())
        reclaim.signal(signal.SIGTERM)
        reclaim.finish()
        hosts.close()
