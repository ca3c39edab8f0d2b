"""Leases from Boskos, command by command, against a stand-in that goes wrong on demand."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.kit.boskos.fixture import StartBoskos
from tests.kit.boskos.process import Boskos
from tests.kit.support import Cli, eventually

pytestmark = pytest.mark.once

# Of a reaper that looks each second; a lease lasts for a second less.
EXPIRE = 4


def use(cli: Cli, server: Boskos, query: str = f"?expire={EXPIRE}s&queue-ttl=5s") -> Boskos:
    cli.env["LEASECTL_BACKEND"] = server.backend + query
    return server


@pytest.fixture
def server(boskos: StartBoskos, cli: Cli) -> Boskos:
    """Three of type T, two of type U, and nothing that goes wrong."""
    return use(cli, boskos("T=3", "U=a,b", expire=EXPIRE, reaper_interval=1, request_ttl=5))


class TestAcquireAndRelease:
    def test_what_is_had_is_owned_by_the_acquisition_until_it_is_released(
        self, cli: Cli, server: Boskos
    ) -> None:
        handle = cli("acquire", "-q", "-t", "T").handle
        (name,) = server.owners
        assert Path(handle).read_text() == name
        assert server.owners[name].endswith(f"/{Path(handle).name}/1")
        assert cli.ok("release", "--handle", handle) == f"{name}\n"
        assert cli.ok("release", "--handle", handle) == ""
        assert server.owners == {}

    def test_reacquired_it_is_another_owners(self, cli: Cli, server: Boskos) -> None:
        handle = cli("acquire", "-q", "-t", "T").handle
        cli.ok("reacquire", "-q", "--handle", handle)
        (owner,) = server.owners.values()
        assert owner.endswith(f"/{Path(handle).name}/2")

    def test_n_leases_are_n_requests_each_with_an_id_of_its_own(
        self, cli: Cli, server: Boskos
    ) -> None:
        handle = cli("acquire", "-q", "-t", "T", "-c", "3").handle
        assert len(Path(handle).read_text().split()) == 3
        ids = [each["request_id"] for each in server.history().of("ask")]
        assert len(set(ids)) == len(ids) == 3
        cli.ok("release", "--all")
        assert server.owners == {}

    def test_who_does_not_wait_has_no_place_in_the_queue(self, cli: Cli, server: Boskos) -> None:
        server.occupy("T", 3)
        finished = cli("acquire", "-t", "T", "-w", "0")
        assert finished.code == 75
        assert server.state()["waiting"] in ([], {}, 0)

    def test_a_waiter_gets_what_is_given_back_under_one_id(self, cli: Cli, server: Boskos) -> None:
        server.occupy("T", 3)
        waiter = cli.spawn(cli.command("acquire", "-t", "T", "-w", "30"))
        eventually(lambda: server.history().of("ask"))
        server.vacate()
        assert waiter.finish().code == 0
        assert len({each["request_id"] for each in server.history().of("ask")}) == 1

    def test_an_unknown_type_is_said_at_once(self, cli: Cli, server: Boskos) -> None:
        finished = cli("acquire", "-t", "nope")
        assert finished.code == 66
        assert "does not exist" in finished.err
        assert cli.ok("status") == ""

    def test_a_resource_by_its_name(self, cli: Cli, server: Boskos) -> None:
        cli.ok("acquire", "-q", "-t", "U", "--name", "b")
        assert set(server.owners) == {"b"}
        assert cli("acquire", "-t", "U", "--name", "b", "-w", "0").code == 75
        unknown = cli("acquire", "-t", "U", "--name", "zzz")
        assert (unknown.code, 'no resource "zzz"' in unknown.err) == (66, True)
        other = cli("acquire", "-t", "T", "--name", "a")
        assert (other.code, "a is of type U, not T" in other.err) == (66, True)
        assert set(server.owners) == {"b"}

    def test_it_is_released_dirty_where_somebody_cleans_it(self, cli: Cli, server: Boskos) -> None:
        use(cli, server, "?release-to=dirty")
        cli.ok("release", "--handle", cli("acquire", "-q", "-t", "T").handle)
        assert '"dirty": 1' in cli.ok("status", "-t", "T", "--json")

    def test_what_the_reaper_took_is_released_with_a_word(self, cli: Cli, server: Boskos) -> None:
        handle = cli("acquire", "-q", "-t", "T", "--ttl", f"{EXPIRE}s").handle
        name = Path(handle).read_text()
        server.reap(name)
        finished = cli("release", "--handle", handle)
        assert finished.code == 0
        assert f"{name} wasn't leased to us any more" in finished.err

    def test_a_copied_names_file_is_of_use_only_where_the_record_is(
        self, cli: Cli, server: Boskos, tmp_path: Path
    ) -> None:
        handle = cli("acquire", "-q", "-t", "T").handle
        copy = tmp_path / "copied"
        shutil.copy(handle, copy)
        elsewhere = cli(
            "release", "--handle", str(copy), LEASECTL_STATE_DIR=str(tmp_path / "other")
        )
        assert elsewhere.code == 77
        assert len(server.owners) == 1
        cli.ok("release", "--handle", str(copy))
        assert server.owners == {}

    def test_what_a_list_names_stays_listed_where_the_record_is_not(
        self, cli: Cli, server: Boskos, tmp_path: Path
    ) -> None:
        shared = tmp_path / "shared"
        shared.mkdir()
        cli.env["SHARED_DIR"] = str(shared)
        test = ("acquire", "-q", "-t", "T", "--scope", "test")
        assert f"needs --ttl {EXPIRE}s" in cli(*test).err
        cli.ok(*test, "--ttl", f"{EXPIRE}s")
        listed = (shared / "leases").read_text()
        elsewhere = cli("release", "--scope", "test", LEASECTL_STATE_DIR=str(tmp_path / "other"))
        assert elsewhere.code == 77
        assert (shared / "leases").read_text() == listed
        cli.ok("release", "--scope", "test")
        assert (server.owners, (shared / "leases").read_text()) == ({}, "")


class TestRenewals:
    def test_the_keeper_renews_what_has_no_run(self, cli: Cli, server: Boskos) -> None:
        cli.ok("acquire", "-q", "-t", "T", "--guard-pid", str(os.getpid()))
        eventually(lambda: len(server.history().asked("/update")) >= 2 * EXPIRE)
        (tenure,) = server.history().tenures
        assert tenure.end == ""

    def test_run_ends_its_command_when_the_lease_is_lost(self, cli: Cli, server: Boskos) -> None:
        running = cli.spawn(cli.command("run", "-t", "T", "--", "sleep", "60"))
        eventually(lambda: server.history().asked("/update"))
        server.reap(next(iter(server.owners)))
        assert running.finish().code == 79

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

    def test_renew_tells_of_a_loss_and_takes_no_other_ttl(self, cli: Cli, server: Boskos) -> None:
        handle = cli("acquire", "-q", "-t", "T", "--ttl", f"{EXPIRE}s").handle
        cli.ok("renew", "--handle", handle)
        longer = cli("renew", "--handle", handle, "--ttl", "1h")
        assert (longer.code, f"give --ttl {EXPIRE}s" in longer.err) == (64, True)
        server.reap(Path(handle).read_text())
        assert cli("renew", "--handle", handle).code == 79

    def test_a_ttl_is_the_reapers_or_none(self, cli: Cli, server: Boskos) -> None:
        assert cli("acquire", "-t", "T", "--ttl", "9s").code == 64


class TestLostAnswers:
    def test_what_was_granted_in_one_is_told_and_never_used(
        self, cli: Cli, boskos: StartBoskos
    ) -> None:
        faults = ("reset-after path=acquire nth=1",)
        server = use(cli, boskos("T=2", faults=faults, expire=EXPIRE, reaper_interval=1))
        finished = cli("acquire", "-t", "T", "--guard-pid", str(os.getpid()))
        (name,) = Path(finished.handle).read_text().split()
        assert "1 resource of T is leased to " in finished.err
        assert "the reaper takes it by " in finished.err
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


class TestPools:
    def test_they_are_boskos_own(self, cli: Cli, server: Boskos) -> None:
        for words in (["pool", "create", "V", "--count", "1"], ["pool", "list"], ["serve"]):
            finished = cli(*words)
            assert finished.code == 64
            assert "as the file says that its --config names" in finished.err

    @pytest.mark.parametrize("words", [["--where", "a=b"], ["--priority", "1"], ["-t", "U"]])
    def test_nor_is_its_queue_ours(self, cli: Cli, server: Boskos, words: list[str]) -> None:
        assert cli("acquire", "-t", "T", *words).code == 64

    def test_status_counts_what_there_is_and_whose(self, cli: Cli, server: Boskos) -> None:
        server.occupy("T", 1)
        handle = Path(cli("acquire", "-q", "-t", "T").handle)
        (pool,) = json.loads(cli.ok("status", "--json"))["pools"]
        assert (pool["type"], pool["capacity"], pool["free"]) == ("T", 3, 1)
        assert pool["states"] == {"free": 1, "leased": 2}
        (ours,) = [each for each in pool["owners"] if each["handle"]]
        assert (ours["handle"], ours["names"]) == (handle.name, [handle.read_text()])
        table = cli.ok("status", "-t", "T")
        assert table.splitlines()[0] == "T: 3 resources, 1 free, 2 leased"
        assert cli("status", "-t", "nope").code == 66
        assert cli("status", "--watch").code == 64

    def test_types_that_handles_know_are_completed(self, cli: Cli, server: Boskos) -> None:
        cli.ok("acquire", "-q", "-t", "T")
        words = f"leasectl acquire --backend {cli.env['LEASECTL_BACKEND']} -t "
        finished = cli(_LEASECTL_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD="5")
        assert finished.out == "plain,T\n"
