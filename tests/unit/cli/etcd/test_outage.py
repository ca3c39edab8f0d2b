"""etcd is down, or hangs: commands say so, end when told to, and nothing is forgotten."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.etcd.server import EtcdServer
from tests.kit.hosts import Hosts, Script
from tests.kit.relay import Relay
from tests.kit.support import Cli
from tests.kit.waits import eventually

UNREACHABLE, NO_LEASE = 69, 75


class TestDown:
    @pytest.fixture
    def here(self, hosts: Hosts, network: Relay) -> Cli:
        hosts.pool("a")
        return hosts.new(through=network.endpoint, LEASECTL_RELEASE_TIMEOUT="1s")

    def test_acquire_says_so_in_one_line(self, network: Relay, here: Cli) -> None:
        network.cut()
        refused = here("acquire", "-q", "-t", "T")
        assert (refused.code, refused.out) == (UNREACHABLE, "")
        assert network.endpoint in refused.err
        assert refused.err.count("\n") == 1

    def test_what_is_optional_is_done_without(self, network: Relay, here: Cli) -> None:
        network.cut()
        runs = [
            here.start("acquire", "-q", "-t", "T", "--optional"),
            here.start("run", "-q", "-t", "T", "--optional", "--", "sh", "-c", "echo ran; exit 3"),
        ]
        acquired, ran = (run.finish() for run in runs)
        assert (acquired.code, acquired.out) == (0, "")
        assert (ran.code, ran.out) == (3, "ran\n")
        for each in (acquired, ran):
            assert "continuing without a lease (--optional)" in each.err.lower()

    def test_the_keeper_releases_what_a_command_could_not(
        self, hosts: Hosts, network: Relay, here: Cli
    ) -> None:
        held = here("acquire", "-t", "T").handle
        network.cut()
        failed = here("release", "--handle", held)
        assert (failed.code, failed.out) == (UNREACHABLE, "")
        assert failed.err.count("\n") == 1
        assert hosts.held() == ["a"]
        assert "the keeper keeps trying to release it" in failed.err.lower()
        network.mend()
        eventually(hosts.is_free)
        eventually(lambda: here.query("SELECT state FROM handle") == [("released",)])
        assert here.ok("release", "--handle", held) == ""

    def test_a_command_that_runs_ends_as_it_would_have(
        self, hosts: Hosts, network: Relay, here: Cli
    ) -> None:
        script = Script(here.cwd, "say begin; await end; exit 5")
        run = here.start("run", "-q", "-t", "T", "--", str(script.path))
        script.wait_for("begin")
        network.cut()
        script.tell("end")
        finished = run.finish()
        assert finished.code == 5
        assert "the keeper keeps trying to release it" in finished.err.lower()
        network.mend()
        eventually(hosts.is_free)

    def test_status_that_watches_waits_for_it(self, network: Relay, here: Cli) -> None:
        watch = here.start("status", "--watch", "--json")
        out, err = watch.process.stdout, watch.process.stderr
        assert out is not None
        assert err is not None
        assert '"held": 0' in out.readline()
        network.cut()
        assert "no answer from etcd" in err.readline()
        network.mend()
        here.ok("acquire", "-t", "T")
        assert any('"held": 1' in line for line in iter(out.readline, ""))
        watch.signal(signal.SIGINT)
        assert watch.finish().code == -signal.SIGINT


class TestHanging:
    @pytest.fixture
    def hosts(self, own_etcd: EtcdServer, tmp_path: Path) -> Iterator[Hosts]:
        hosts = Hosts(own_etcd.endpoints[0], tmp_path)
        hosts.pool("a")
        yield hosts
        own_etcd.signal(0, signal.SIGCONT)
        hosts.close()

    def test_waiters_get_their_leases_in_order_afterwards(
        self, own_etcd: EtcdServer, hosts: Hosts
    ) -> None:
        here, there = hosts.new(), hosts.new()
        script = Script(here.cwd, 'say "$1"')
        held = here("acquire", "-t", "T").handle
        waiters = [
            hosts.start_waiting(cli, "run", "-q", "-t", "T", "--", str(script.path), str(number))
            for number, cli in enumerate((there, here, there))
        ]
        own_etcd.signal(0, signal.SIGSTOP)
        released = here.start("release", "--handle", held)
        time.sleep(1)  # some requests are under way, or not; either is right
        own_etcd.signal(0, signal.SIGCONT)
        assert released.finish().out == "a\n"
        assert [waiter.finish().code for waiter in waiters] == [0, 0, 0]
        assert [line.words for line in script.said] == [("0",), ("1",), ("2",)]
        assert hosts.is_free()

    def test_a_wait_is_no_longer_than_it_may_be(self, own_etcd: EtcdServer, hosts: Hosts) -> None:
        here, there = hosts.new(), hosts.new()
        there.ok("acquire", "-t", "T")
        waits = [
            hosts.start_waiting(here, "acquire", "-q", "-t", "T", "-w", "2s"),
            here.start("acquire", "-q", "-t", "T", "-w", "0"),
        ]
        own_etcd.signal(0, signal.SIGSTOP)
        for waiter in waits:
            ended = waiter.finish()
            # The second may have been answered that there is nothing.
            assert ended.code in (UNREACHABLE, NO_LEASE)
            assert ended.err.count("\n") == 1
        own_etcd.signal(0, signal.SIGCONT)
        eventually(lambda: hosts.waiting() == 0, what="their tickets are taken away")

    @pytest.mark.parametrize(
        ("command", "signum"), [("acquire", signal.SIGINT), ("run", signal.SIGTERM)]
    )
    def test_a_signal_ends_a_waiter_soon(
        self, own_etcd: EtcdServer, hosts: Hosts, command: str, signum: signal.Signals
    ) -> None:
        here, there = hosts.new(), hosts.new()
        there.ok("acquire", "-t", "T")
        words = [command, "-q", "-t", "T", *(["--", "true"] if command == "run" else [])]
        waiter = hosts.start_waiting(here, *words)
        own_etcd.signal(0, signal.SIGSTOP)
        waiter.signal(signum)
        assert waiter.finish().code == -signum
        own_etcd.signal(0, signal.SIGCONT)
        eventually(lambda: hosts.waiting() == 0, what="its ticket is taken away")

    def test_a_signal_ends_who_only_wants_to_queue_soon(
        self, own_etcd: EtcdServer, hosts: Hosts
    ) -> None:
        here = hosts.new()
        here.ok("status")
        own_etcd.signal(0, signal.SIGSTOP)
        waiter = here.start("acquire", "-q", "-t", "T")
        eventually(lambda: here.query("SELECT 1 FROM handle"), what="it is about to ask")
        waiter.signal(signal.SIGTERM)
        assert waiter.finish().code == -signal.SIGTERM
        own_etcd.signal(0, signal.SIGCONT)
        eventually(lambda: hosts.is_free() and not here.keepers())
