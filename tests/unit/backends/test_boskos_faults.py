"""Leases from a Boskos that goes wrong, and what its log says of the requests it got."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.kit.boskos.process import Boskos, StartBoskos
from tests.kit.boskos.raw_boskos import RawBoskos
from tests.kit.relay import Relay
from tests.kit.support import Cli
from tests.kit.waits import eventually

pytestmark = pytest.mark.once

# Of a reaper that looks each second; a lease lasts for a second less.
EXPIRE = 4


def use(cli: Cli, server: Boskos, query: str = f"?expire={EXPIRE}s&queue-ttl=5s") -> Boskos:
    cli.env["LEASECTL_BACKEND"] = server.backend + query
    return server


@pytest.fixture
def server(boskos: StartBoskos, cli: Cli) -> Boskos:
    """Three of a type, and nothing that goes wrong."""
    return use(cli, boskos("T=3", expire=EXPIRE, reaper_interval=1, request_ttl=5))


class TestRequests:
    def test_a_waiter_asks_under_one_id(self, cli: Cli, server: Boskos) -> None:
        server.occupy("T", 3)
        waiter = cli.start("acquire", "-t", "T", "-w", "5m")
        eventually(lambda: len(server.history().of("ask")) > 1)
        server.vacate()
        assert waiter.finish().code == 0
        assert len({each["request_id"] for each in server.history().of("ask")}) == 1

    def test_run_ends_it_before_the_reaper_comes_when_boskos_is_silent(
        self, cli: Cli, server: Boskos
    ) -> None:
        script = "trap 'touch ended; kill $!; exit' TERM; touch begun; sleep 60 & wait"
        running = cli.spawn(cli.command("run", "-t", "T", "--", "bash", "-c", script))
        eventually((cli.cwd / "begun").exists)
        server.pause()
        eventually((cli.cwd / "ended").exists)
        (tenure,) = server.history().tenures
        server.go_on()
        assert running.finish().code == 79
        assert tenure.end == ""


def test_what_another_job_occupies_is_not_reaped(boskos: StartBoskos) -> None:
    server = boskos("T=2", expire=1, reaper_interval=0.1)
    occupied = server.occupy("T")
    with RawBoskos(server.url) as client:
        name = client.get()
    eventually(lambda: name not in server.owners)
    assert list(server.owners) == occupied


class TestALaggingView:
    """Boskos calls nobody's what it has granted a moment ago."""

    def test_what_is_given_back_at_once_is_given_back(self, cli: Cli, boskos: StartBoskos) -> None:
        server = use(cli, boskos("T=2", view_lag=0.4))
        server.occupy("T", 1)
        assert cli("acquire", "-t", "T", "-c", "2", "-w", "0").code == 75
        assert set(server.owners.values()) == {"another-job"}
        finished = cli("run", "-t", "T", "--", "true")
        assert (finished.code, finished.err) == (0, "")
        assert set(server.owners.values()) == {"another-job"}

    def test_what_is_renewed_at_once_is_not_lost(self, cli: Cli, boskos: StartBoskos) -> None:
        server = use(cli, boskos("T=1", view_lag=0.4))
        handle = cli("acquire", "-q", "-t", "T", "--ttl", f"{EXPIRE}s").handle
        assert cli("renew", "--handle", handle).code == 0
        assert len(server.owners) == 1


class TestLostAnswers:
    def test_what_was_granted_in_one_is_told_and_never_used(
        self, cli: Cli, boskos: StartBoskos
    ) -> None:
        faults = ("reset-after path=acquire nth=1",)
        server = use(cli, boskos("T=2", faults=faults, expire=EXPIRE, reaper_interval=1))
        finished = cli("acquire", "-t", "T", "--guard-pid", str(os.getpid()))
        (name,) = Path(finished.handle).read_text().split()
        assert "1 resource of T is leased to " in finished.err
        assert "Boskos' reaper frees what isn't renewed, by " in finished.err
        lost = [each.name for each in server.history().tenures if each.name != name]
        eventually(lambda: set(server.owners) == {name})
        assert [each.end for each in server.history().tenures if each.name in lost] == ["reap"]

    def test_by_name_it_is_known_whose_it_is(self, cli: Cli, boskos: StartBoskos) -> None:
        server = use(cli, boskos("T=2", faults=("reset-after path=acquirebystate nth=1",)))
        handle = cli("acquire", "-q", "-t", "T", "--name", "T--01").handle
        assert Path(handle).read_text() == "T--01"
        assert set(server.owners) == {"T--01"}

    @pytest.mark.parametrize("fault", ["reset-before", "500", "503"])
    def test_one_that_carried_nothing_is_asked_again(
        self, cli: Cli, boskos: StartBoskos, fault: str
    ) -> None:
        server = use(cli, boskos("T=1", faults=(f"{fault} path=acquire nth=1",)))
        finished = cli("acquire", "-t", "T")
        assert finished.code == 0
        assert "trying again" in finished.err
        assert len(server.owners) == 1

    def test_that_of_a_release_is_no_loss(self, cli: Cli, boskos: StartBoskos) -> None:
        server = use(cli, boskos("T=1", faults=("reset-after path=release nth=1",)))
        handle = cli("acquire", "-q", "-t", "T").handle
        finished = cli("release", "--handle", handle)
        assert (finished.code, finished.err) == (0, "")
        assert server.owners == {}

    def test_who_gives_back_what_another_gives_back_is_no_alarm(
        self, cli: Cli, boskos: StartBoskos
    ) -> None:
        server = use(cli, boskos("T=1", faults=("delay-after seconds=2 path=release nth=1",)))
        handle = cli("acquire", "-q", "-t", "T").handle
        slow = cli.start("release", "--handle", handle)
        eventually(lambda: server.owners == {})
        quick = cli("release", "--handle", handle)
        assert (quick.code, quick.out, quick.err) == (0, "T--00\n", "")
        finished = slow.finish()
        assert (finished.code, finished.out, finished.err) == (0, "", "")

    def test_what_comes_after_a_term_is_given_back(self, cli: Cli, boskos: StartBoskos) -> None:
        faults = ("delay seconds=0.4 path=acquire",)
        server = use(cli, boskos("T=1", faults=faults))
        waiter = cli.spawn(cli.command("acquire", "-t", "T"))
        eventually(lambda: server.history().asked("/acquire"))
        waiter.signal(signal.SIGTERM)
        assert waiter.finish().code == -signal.SIGTERM
        assert server.owners == {}

    def test_a_boskos_that_is_not_there_is_told(self, cli: Cli) -> None:
        finished = cli(
            "acquire", "-t", "T", "-w", "0", LEASECTL_BACKEND="boskos+http://127.0.0.1:9"
        )
        assert finished.code == 69

    @pytest.mark.parametrize("words", [("acquire", "T", "-w", "5m"), ("status", "T")])
    def test_what_knows_no_page_at_a_wrong_address_is_no_boskos_without_the_type(
        self, cli: Cli, server: Boskos, words: tuple[str, ...]
    ) -> None:
        other = Relay(server.url)
        other.instead = lambda number, path: (
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 18\r\n\r\n404 page not found"
        )
        finished = cli(*words, LEASECTL_BACKEND=f"boskos+{other.endpoint}")
        other.close()
        assert (finished.code, "not a working Boskos" in finished.err) == (69, True)
