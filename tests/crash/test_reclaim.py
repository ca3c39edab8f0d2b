"""Leases that are taken back by handshake, while operators, and one at each step, are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasectl.backends.contract import Patience
from leasectl.engines.notes import NoteChange
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.marks import answer, asked_of, encode_mark, new_mark, unuse, use
from leasectl.leases.service import Service
from leasectl.model import Request, whole
from leasectl.state.event import Event
from leasectl.system.process import this_process
from tests.crash.reclaim_campaign import Size, campaign
from tests.crash.reclaim_log import Line, violations
from tests.crash.sweeping import Sweep, kill_at_request
from tests.kit.etcd.server import EtcdServer
from tests.kit.forking import ending, fork, leasectl
from tests.kit.hosts import Hosts
from tests.kit.killing import FULL_SIZE, kill_at
from tests.kit.kubernetes.hosts import namespace_settings
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.support import Cli

TOO_FEW = 75
SHORT = Size(
    holders=16,
    processes=2,
    seconds=1.5,
    at_least=8,
    delay_seconds=0.4,
    excess=12,
    killed_every_seconds=(0.8, 1.6),
)
SIZE = Size() if FULL_SIZE else SHORT


class TestHandshake:
    def test_never_is_freed_what_is_in_use_nor_used_what_was_freed(self, tmp_path: Path) -> None:
        report = campaign(tmp_path, "local:", SIZE)
        print(report.counts)
        assert report.violations == []
        assert report.counts["taken back"] >= SIZE.at_least
        assert report.counts["operators killed"] > 1

    def test_the_same_in_etcd(self, etcd: EtcdServer, tmp_path: Path) -> None:
        report = campaign(tmp_path, url_below(etcd, tmp_path), SIZE, states=2)
        print(report.counts)
        assert report.violations == []
        assert report.counts["taken back"] >= SIZE.at_least

    def test_the_same_in_kubernetes(self, namespace: Namespace, tmp_path: Path) -> None:
        settings = namespace_settings(namespace, tmp_path)
        report = campaign(tmp_path, "kubernetes://", SIZE, states=2, settings=settings)
        print(report.counts)
        assert report.violations == []
        assert report.counts["taken back"] >= SIZE.at_least

    def test_without_it_that_happens_and_would_be_seen(
        self, etcd: EtcdServer, tmp_path: Path
    ) -> None:
        backend = url_below(etcd, tmp_path)
        size = SIZE._replace(is_to_show_races=True)
        report = campaign(tmp_path, backend, size, shakes_hands=False, states=2)
        assert any("in use" in each for each in report.violations)


def url_below(etcd: EtcdServer, folder: Path) -> str:
    return f"{etcd.endpoints[0].replace('http://', 'etcd://')}/{folder.name}"


class TestJudging:
    FREED = Event(1, 10.0, "released", "T", ("a",), (7,), by="reclaim")

    @pytest.mark.parametrize(
        ("lines", "found"),
        [
            ([], []),
            ([("use", 8.0), ("unuse", 9.9)], []),
            ([("use", 8.0), ("unuse", 10.1)], ["('a', 7) was freed while it was in use"]),
            ([("use", 8.0)], ["('a', 7) was freed while it was in use"]),
            ([("use", 10.2)], ["('a', 7) was used after it was freed"]),
            ([("refused", 10.2)], []),
        ],
    )
    def test_uses_and_frees_are_held_against_each_other(
        self, lines: list[tuple[str, float]], found: list[str]
    ) -> None:
        said = [Line(at, at, kind, 1, "a", 7) for kind, at in lines]
        assert violations(said, [self.FREED], delay_seconds=1.0) == found

    def test_a_mark_before_its_time_is_found(self) -> None:
        early = [Line(1.0, 1.0, "start", 1), Line(1.9, 1.8, "asked", 1, "a", 7)]
        assert len(violations(early, [], delay_seconds=1.0)) == 1
        again = [
            Line(1.0, 1.0, "start", 1),
            Line(5.0, 5.0, "look", 1),
            Line(5.1, 5.1, "off", 1, "a", 7),
            Line(5.9, 5.9, "asked", 1, "a", 7),
        ]
        assert len(violations(again, [], delay_seconds=1.0)) == 1
        assert violations(again, [], delay_seconds=0.8) == []


class Asked:
    """A handle of two names, of which one was answered as ready for a reclaim that was killed.

    Args:
        sweep: On whose state directory.
        backend: Where its leases come from.
    """

    def __init__(self, sweep: Sweep, backend: str) -> None:
        self._sweep = sweep
        self._backend = backend
        with sweep.service() as service:
            request = Request("T", count=2, on_reclaim="answer")
            handle = acquire(service, request, patience=Patience(), guard=this_process())
            announce(service, handle)
            self.handle = service.handles.require(handle.id)
            mark = new_mark("an operator that was killed", seconds=60.0, now=0.0)
            ready, other = self.handle.leases
            self.ready, self.other = ready.name, other.name
            change = NoteChange("T", ready.name, ready.fence, None, encode_mark(mark))
            assert service.notes.change([change]) == (True,)
            # Not by its single steps: of those the keeper may have done the last by then.
            assert answer(service, whole(self.handle), "ready", [self.ready]) == (self.ready,)

    def arguments(self) -> list[str]:
        """Of a reclaim of both."""
        names = f"{self.ready},{self.other}"
        once = ["--delay", "0", "-w", "0.05", "-q", "--backend", self._backend]
        return ["reclaim", "T", "--names", names, *once]

    def freed(self, service: Service) -> list[str]:
        """The names of this handle that were freed so far."""
        return [
            name
            for event in service.events.read()
            if event.handle == self.handle.id and event.kind == "released"
            for name in event.names
        ]

    def kill(self, number: int) -> int:
        """Have the reclaim be killed around a request of it; returns how it ended."""

        def work() -> None:
            kill_at_request(number // 2, after=bool(number % 2))
            leasectl(self._sweep.cli.state_dir, self._sweep.output, *self.arguments())

        return finished(ending(fork(work)))

    def check(self, when: str) -> None:
        """Let another reclaim run to its end: what was ready was freed once, the other is held."""
        sweep = self._sweep
        if self._backend == "local:":  # else what is held is elsewhere
            sweep.next_command(when)
        assert sweep.cli(*self.arguments()).code == TOO_FEW, when
        with sweep.service() as service:
            assert self.freed(service) == [self.ready], when
            assert service.notes.of_pool("T") == (), when
            target = whole(self.handle)
            asked_of(service, target)
            left = service.handles.require(self.handle.id)
            assert left.names == (self.other,), when
            assert not left.lost, when
            use(service, target, self.other)
            unuse(service, target, self.other)
        sweep.give_back()
        sweep.next_command(when)


def finished(code: int) -> int:
    return 0 if code == TOO_FEW else code


def test_a_reclaim_can_be_killed_at_each_of_its_calls(cli: Cli, tmp_path: Path) -> None:
    sweep = Sweep(cli, tmp_path)
    sweep.keep_a_keeper()

    def attempt(number: int) -> int:
        asked = Asked(sweep, "local:")

        def work() -> None:
            kill_at(number)
            leasectl(cli.state_dir, sweep.output, *asked.arguments())

        code = finished(ending(fork(work)))
        asked.check(f"killed at event {number}")
        return code

    sweep.kill_each(attempt, stride=151, at_least=6)


def test_a_reclaim_in_etcd_can_be_killed_around_each_of_its_requests(
    hosts: Hosts, tmp_path: Path
) -> None:
    sweep = Sweep(hosts.new(), tmp_path, backend=hosts.url)

    def attempt(number: int) -> int:
        asked = Asked(sweep, hosts.url)
        code = asked.kill(number)
        asked.check(f"killed around request {number / 2}")
        return code

    sweep.kill_each(attempt, stride=9, at_least=3)
