"""Leases from Boskos, command by command.

All of it holds at a real one as well, which `LEASECTL_TEST_BOSKOS` names.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.kit.boskos.any_boskos import AnyBoskos, SharedBoskos
from tests.kit.support import Cli, Started
from tests.kit.waits import eventually

pytestmark = pytest.mark.once

# What a lease lasts for that nobody renews, where a test does the reaper's work.
EXPIRE = 4


@pytest.fixture
def server(any_boskos: AnyBoskos, cli: Cli) -> AnyBoskos:
    cli.env["LEASECTL_BACKEND"] = any_boskos.backend(f"{EXPIRE}s")
    return any_boskos


@pytest.fixture
def other_type(shared_boskos: SharedBoskos) -> AnyBoskos:
    """Another type there."""
    return shared_boskos.one()


def until_it_waits(waiter: Started) -> None:
    """It has asked, and was told that none is free."""
    assert waiter.process.stderr is not None
    assert "waiting for" in waiter.process.stderr.readline()


class TestAcquireAndRelease:
    def test_what_is_had_is_owned_by_the_acquisition_until_it_is_released(
        self, cli: Cli, server: AnyBoskos
    ) -> None:
        handle = cli("acquire", "-q", server.type).handle
        (name,) = server.owners
        assert Path(handle).read_text() == name
        assert server.owners[name].endswith(f"/{Path(handle).name}/1")
        assert cli.ok("release", handle) == f"{name}\n"
        assert cli.ok("release", handle) == ""
        assert server.owners == {}

    def test_reacquired_it_is_another_owners(self, cli: Cli, server: AnyBoskos) -> None:
        handle = cli("acquire", "-q", server.type).handle
        cli.ok("reacquire", "-q", "--handle", handle)
        (owner,) = server.owners.values()
        assert owner.endswith(f"/{Path(handle).name}/2")

    def test_n_leases_are_one_owners(self, cli: Cli, server: AnyBoskos) -> None:
        handle = cli("acquire", "-q", server.type, "-c", "3").handle
        assert sorted(Path(handle).read_text().split()) == server.names
        assert len(set(server.owners.values())) == 1
        assert cli.ok("release", "--all") != ""
        assert server.owners == {}

    def test_when_not_all_can_be_had_in_time_none_is_kept(
        self, cli: Cli, server: AnyBoskos
    ) -> None:
        server.occupy(1)
        assert cli("acquire", server.type, "-c", "3", "-w", "1").code == 75
        assert len(server.owners) == 1

    def test_who_waits_for_more_than_there_are_is_told(self, cli: Cli, server: AnyBoskos) -> None:
        finished = cli("acquire", server.type, "-c", "4", "-w", "3")
        assert finished.code == 75
        told = f'Boskos has only 3 resources of type "{server.type}"; this request for 4 waits'
        assert finished.err.count(told) == 1
        assert server.owners == {}
        server.occupy(1)
        assert "has 3 of" not in cli("acquire", server.type, "-c", "3", "-w", "1").err

    def test_who_does_not_wait_leaves_no_place_in_the_queue(
        self, cli: Cli, server: AnyBoskos
    ) -> None:
        server.occupy(3)
        assert cli("acquire", server.type, "-w", "0").code == 75
        server.vacate()
        # One who asks without an id is behind all who have a place.
        assert [server.client("me").acquire().status for _ in server.names] == [200] * 3

    def test_a_waiter_ends_by_the_signal_that_it_got(self, cli: Cli, server: AnyBoskos) -> None:
        server.occupy(3)
        waiter = cli.start("acquire", server.type)
        until_it_waits(waiter)
        waiter.signal(signal.SIGTERM)
        assert waiter.finish().code == -signal.SIGTERM
        server.vacate()
        assert server.owners == {}

    def test_an_unknown_type_is_said_at_once(self, cli: Cli, server: AnyBoskos) -> None:
        finished = cli("acquire", "nope")
        assert finished.code == 66
        assert "does not exist" in finished.err
        assert cli.ok("status") == ""

    def test_a_resource_by_its_name(
        self, cli: Cli, server: AnyBoskos, other_type: AnyBoskos
    ) -> None:
        first, second, _ = server.names
        cli.ok("acquire", "-q", server.type, "--name", second)
        assert set(server.owners) == {second}
        assert cli("acquire", server.type, "--name", second, "-w", "0").code == 75
        unknown = cli("acquire", server.type, "--name", "zzz")
        assert (unknown.code, 'no resource "zzz"' in unknown.err) == (66, True)
        other = cli("acquire", other_type.type, "--name", first)
        assert (other.code, f"{first} is of type {server.type}" in other.err) == (66, True)
        assert set(server.owners) == {second}

    def test_it_is_released_dirty_where_somebody_cleans_it(
        self, cli: Cli, server: AnyBoskos
    ) -> None:
        cli.env["LEASECTL_BACKEND"] = server.backend(**{"release-to": "dirty"})
        cli.ok("release", cli("acquire", "-q", server.type).handle)
        assert '"dirty": 1' in cli.ok("status", server.type, "--json")

    def test_what_the_reaper_took_is_released_with_a_word(
        self, cli: Cli, server: AnyBoskos
    ) -> None:
        handle = cli("acquire", "-q", server.type, "--ttl", f"{EXPIRE}s").handle
        name = Path(handle).read_text()
        server.reap(name)
        finished = cli("release", handle)
        assert finished.code == 0
        assert f"{name} was no longer leased to us" in finished.err

    def test_what_another_has_by_now_stays_its_own(self, cli: Cli, server: AnyBoskos) -> None:
        handle = cli("acquire", "-q", server.type, "--ttl", f"{EXPIRE}s").handle
        name = Path(handle).read_text()
        server.reap(name)
        server.client("next").acquire_names(name, state="dirty")
        finished = cli("release", handle)
        assert (finished.code, "currently owned by next" in finished.err) == (0, True)
        assert server.owners == {name: "next"}

    def test_a_copied_names_file_is_of_use_only_where_the_record_is(
        self, cli: Cli, server: AnyBoskos, tmp_path: Path
    ) -> None:
        handle = cli("acquire", "-q", server.type).handle
        copy = tmp_path / "copied"
        shutil.copy(handle, copy)
        elsewhere = cli("release", str(copy), LEASECTL_STATE_DIR=str(tmp_path / "other"))
        assert elsewhere.code == 77
        assert len(server.owners) == 1
        cli.ok("release", str(copy))
        assert server.owners == {}

    def test_nobody_releases_anothers_by_force(self, cli: Cli, server: AnyBoskos) -> None:
        server.occupy(1)
        (name,) = server.owners
        by_force = cli("release", "--force", "--names", name)
        assert (by_force.code, "only for its handle" in by_force.err) == (64, True)
        assert cli("release", "--names", name).code == 77
        assert set(server.owners) == {name}

    def test_what_a_list_names_stays_listed_where_the_record_is_not(
        self, cli: Cli, server: AnyBoskos, tmp_path: Path
    ) -> None:
        shared = tmp_path / "shared"
        shared.mkdir()
        cli.env["SHARED_DIR"] = str(shared)
        test = ("acquire", "-q", server.type, "--scope", "test")
        assert f"needs --ttl {EXPIRE}s" in cli(*test).err
        cli.ok(*test, "--ttl", f"{EXPIRE}s")
        listed = (shared / "leases").read_text()
        elsewhere = cli("release", "--scope", "test", LEASECTL_STATE_DIR=str(tmp_path / "other"))
        assert elsewhere.code == 77
        assert (shared / "leases").read_text() == listed
        cli.ok("release", "--scope", "test")
        assert (server.owners, (shared / "leases").read_text()) == ({}, "")


class TestWhoeverHolds:
    def test_who_is_killed_while_it_runs_leaves_nothing(self, cli: Cli, server: AnyBoskos) -> None:
        words = ("--", "bash", "-c", "echo $$ >pid; sleep 60")
        running = cli.start("run", "-q", server.type, *words)
        eventually(lambda: (cli.cwd / "pid").exists() and (cli.cwd / "pid").read_text())
        running.kill()
        os.kill(int((cli.cwd / "pid").read_text()), signal.SIGKILL)
        eventually(lambda: server.owners == {})


class TestRenewals:
    def test_the_keeper_renews_what_has_no_run(self, cli: Cli, server: AnyBoskos) -> None:
        handle = cli("acquire", "-q", server.type, "--guard-pid", str(os.getpid())).handle
        unrenewed = server.client("unrenewed").get()
        # The reaper comes, and takes what nobody renews.
        taken = eventually(lambda: server.reap_older(EXPIRE))
        assert taken == [unrenewed]
        assert set(server.owners) == {Path(handle).read_text()}

    def test_run_ends_its_command_when_the_lease_is_lost(self, cli: Cli, server: AnyBoskos) -> None:
        running = cli.start("run", server.type, "--", "sleep", "60")
        server.reap(next(iter(eventually(lambda: server.owners))))
        assert running.finish().code == 79

    def test_renew_tells_of_a_loss_and_takes_no_other_ttl(
        self, cli: Cli, server: AnyBoskos
    ) -> None:
        handle = cli("acquire", "-q", server.type, "--ttl", f"{EXPIRE}s").handle
        cli.ok("renew", "--handle", handle)
        longer = cli("renew", "--handle", handle, "--ttl", "1h")
        assert (longer.code, f"use --ttl {EXPIRE}s" in longer.err) == (64, True)
        server.reap(Path(handle).read_text())
        assert cli("renew", "--handle", handle).code == 79

    def test_a_ttl_is_the_reapers_or_none(self, cli: Cli, server: AnyBoskos) -> None:
        assert cli("acquire", server.type, "--ttl", "9s").code == 64


class TestPools:
    def test_they_are_boskos_own(self, cli: Cli, server: AnyBoskos) -> None:
        for words in (["pool", "create", "V", "--count", "1"], ["pool", "list"]):
            finished = cli(*words)
            assert finished.code == 64
            assert "its own configuration file (its --config, usually a ConfigMap)" in finished.err

    @pytest.mark.parametrize("words", [["--where", "a=b"], ["--priority", "1"], ["-t", "U"]])
    def test_nor_is_its_queue_ours(self, cli: Cli, server: AnyBoskos, words: list[str]) -> None:
        assert cli("acquire", "-t", server.type, *words).code == 64

    def test_status_counts_what_there_is_and_whose(self, cli: Cli, server: AnyBoskos) -> None:
        server.occupy(1)
        handle = Path(cli("acquire", "-q", server.type).handle)
        (pool,) = json.loads(cli.ok("status", "--json"))["pools"]
        assert (pool["type"], pool["capacity"], pool["free"]) == (server.type, 3, 1)
        assert pool["states"] == {"free": 1, "leased": 2}
        (ours,) = [each for each in pool["owners"] if each["handle"]]
        assert (ours["handle"], ours["names"]) == (handle.name, [handle.read_text()])
        table = cli.ok("status", server.type)
        assert table.splitlines()[0] == f"{server.type}: 3 resources, 1 free, 2 leased"
        assert cli("status", "nope").code == 66

    def test_types_that_handles_know_are_completed(self, cli: Cli, server: AnyBoskos) -> None:
        cli.ok("acquire", "-q", server.type)
        words = "leasectl acquire -t "
        finished = cli(_LEASECTL_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD="3")
        assert finished.out == f"plain,{server.type}\n"
