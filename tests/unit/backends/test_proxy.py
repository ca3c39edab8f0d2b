"""The lease proxy's client, against a real server that goes wrong on demand."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import cast

import pytest

from leasectl.backends.contract import Patience
from leasectl.backends.proxy.backend import ProxyBackend
from leasectl.backends.proxy.connection import Connection
from leasectl.backends.unanswered import NotSent
from leasectl.http.messages import Answer
from leasectl.model import Claimant, Lease, Request
from leasectl.state.directory import State
from leasectl.system.clock import Clock, boottime_seconds
from tests.kit.faults.history import names_in_handles
from tests.kit.faults.process import FaultProxy, StartFaultProxy
from tests.kit.forking import ending, fork
from tests.kit.killing import FULL_SIZE
from tests.kit.recorded import NoJournal
from tests.kit.support import Cli
from tests.kit.waits import eventually


@pytest.fixture
def proxy(fault_proxy: StartFaultProxy, cli: Cli) -> FaultProxy:
    """A lease proxy with three leases of type T, and nothing that goes wrong."""
    return use(cli, fault_proxy("T=3"))


def use(cli: Cli, proxy: FaultProxy) -> FaultProxy:
    cli.env["LEASE_PROXY_SERVER_URL"] = proxy.url
    return proxy


def accounted_for(cli: Cli, proxy: FaultProxy) -> bool:
    """Whether what is leased is exactly what handles say."""
    return proxy.history().compare(names_in_handles(cli.state_dir)) == []


class TestAcquireAndRelease:
    def test_what_is_printed_is_what_the_embedded_pool_prints(
        self, cli: Cli, proxy: FaultProxy
    ) -> None:
        handle = cli("acquire", "-q", "-t", "T").handle
        assert cli.ok("cat", "--handle", handle) == "T--00\n"
        assert proxy.leased == ["T--00"]
        assert cli.ok("release", "--handle", handle) == "T--00\n"
        assert cli.ok("release", "--handle", handle) == ""
        assert proxy.leased == []

    def test_n_leases_are_n_requests(self, cli: Cli, proxy: FaultProxy) -> None:
        handle = cli("acquire", "-t", "T", "-c", "3").handle
        assert cli.ok("cat", "--handle", handle, "--format", "csv") == "T--00,T--01,T--02\n"
        queries = [each["target"] for each in proxy.history().of("request")]
        assert queries == ["/lease/acquire?type=T&count=1"] * 3

    def test_of_many_releases_at_once_one_prints(self, cli: Cli, proxy: FaultProxy) -> None:
        handle = cli("acquire", "-t", "T").handle
        running = [cli.start("release", "--handle", handle) for _ in range(8)]
        finished = [each.finish() for each in running]
        assert sorted(each.out for each in finished) == [""] * 7 + ["T--00\n"]
        assert {each.code for each in finished} == {0}

    def test_a_copied_names_file_is_released_by_its_names(
        self, cli: Cli, proxy: FaultProxy, tmp_path: Path
    ) -> None:
        copy = tmp_path / "copy"
        copy.write_bytes(Path(cli("acquire", "-t", "T", "-c", "2").handle).read_bytes())
        elsewhere = str(tmp_path / "elsewhere")
        released = cli.ok("release", "--handle", str(copy), LEASECTL_STATE_DIR=elsewhere)
        assert released == "T--00\nT--01\n"
        assert proxy.leased == []

    def test_scope_test_is_released_by_a_later_step(
        self, cli: Cli, proxy: FaultProxy, tmp_path: Path
    ) -> None:
        shared = tmp_path / "shared"
        shared.mkdir()
        cli.env["SHARED_DIR"] = str(shared)
        cli.ok("acquire", "-t", "T", "--scope", "test")
        assert (shared / "leases").read_text() == "T--00\n"
        later = str(tmp_path / "later-step")
        assert cli.ok("release", "--scope", "test", LEASECTL_STATE_DIR=later) == "T--00\n"
        assert (shared / "leases").read_text() == ""
        assert proxy.leased == []

    def test_the_keeper_releases_later(self, cli: Cli, proxy: FaultProxy) -> None:
        cli.ok("acquire", "-t", "T", "--release-after", "0.5s")
        eventually(lambda: proxy.leased == [])

    def test_a_dead_guards_lease_is_released(self, cli: Cli, proxy: FaultProxy) -> None:
        guard = cli.spawn(["sleep", "60"])
        cli.ok("acquire", "-t", "T", "--guard-pid", str(guard.pid))
        guard.kill()
        eventually(lambda: proxy.leased == [])

    def test_reacquire_gives_back_and_takes_again(self, cli: Cli, proxy: FaultProxy) -> None:
        handle = cli("acquire", "-t", "T").handle
        assert cli("reacquire", "--handle", handle).handle == handle
        assert proxy.leased == cli.ok("cat", "--handle", handle).split()
        assert len(proxy.leased) == 1

    def test_run_holds_a_lease_while_its_command_runs(self, cli: Cli, proxy: FaultProxy) -> None:
        script = 'printf %s "$LEASECTL_NAMES/$LEASECTL_FENCE"; exit 3'
        finished = cli("run", "-t", "T", "--", "sh", "-c", script)
        assert (finished.code, finished.out) == (3, "T--00/")
        assert proxy.leased == []


class TestWhatTheProtocolCannotDo:
    @pytest.mark.parametrize(
        "option", [("--name", "T--00"), ("--ttl", "60s"), ("-w", "0")], ids=lambda o: o[0]
    )
    def test_it_is_refused(self, cli: Cli, proxy: FaultProxy, option: tuple[str, str]) -> None:
        finished = cli("acquire", "-t", "T", *option)
        assert finished.code == 64
        assert f"{option[0]} " in finished.err.replace("-w 0", "-w 0 ")
        assert proxy.history().of("request") == []

    def test_there_is_no_renew(self, cli: Cli, proxy: FaultProxy) -> None:
        handle = cli("acquire", "-t", "T").handle
        assert cli("renew", "--handle", handle).code == 64

    def test_an_unknown_type_is_66_with_the_servers_words(
        self, cli: Cli, proxy: FaultProxy
    ) -> None:
        finished = cli("acquire", "-t", "nope")
        assert finished.code == 66
        assert 'Failed to acquire lease "nope": resource type not found' in finished.err
        assert finished.err.count("\n") == 1


class TestLosses:
    def test_a_lost_reply_is_told_and_asked_again_once(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        proxy = use(cli, fault_proxy("T=3", faults=("reset-after path=acquire nth=1",)))
        finished = cli("acquire", "-t", "T")
        assert finished.code == 0
        assert "may have been granted and stay leased until the job ends" in finished.err
        assert cli.query("SELECT lost_replies FROM handle") == [(1,)]
        assert proxy.history().lost == {"T--00"}
        keys = [each["idempotency_key"] for each in proxy.history().of("request")]
        assert len(keys) == 3  # the second asks for none, to see whether the key comes back
        assert len(set(keys)) == 1

    def test_a_server_that_honours_the_key_loses_nothing(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        faults = ("reset-after path=acquire nth=1",)
        proxy = use(cli, fault_proxy("T=3", faults=faults, idempotent=True))
        handle = cli("acquire", "-t", "T").handle
        assert cli.ok("cat", "--handle", handle) == "T--00\n"
        assert proxy.leased == ["T--00"]

    @pytest.mark.parametrize("fault", ["garbage", "not-json", "half", "reset-after"])
    def test_a_server_that_never_answers_right_is_given_up(
        self, cli: Cli, fault_proxy: StartFaultProxy, fault: str
    ) -> None:
        proxy = use(cli, fault_proxy("T=3", faults=(f"{fault} path=acquire",), idempotent=True))
        finished = cli("acquire", "-t", "T")
        assert finished.code == 69
        assert cli.query("SELECT state FROM handle") == []
        assert proxy.leased == []
        *asked, undone = proxy.history().of("request")
        assert {each["path"] for each in asked} == {"/lease/acquire"}
        assert undone["body"] == '{"names":[]}'

    def test_a_server_that_refuses_to_undo_is_not_asked_for_ever(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        faults = ("reset-after path=acquire", "400 path=release")
        proxy = use(cli, fault_proxy("T=3", faults=faults))
        assert cli("acquire", "-t", "T").code == 69
        assert cli.query("SELECT state FROM handle") == []  # nothing is left for the keeper
        assert [each["path"] for each in proxy.history().of("request")].count("/lease/release") == 1

    @pytest.mark.parametrize("fault", ["500", "reset-connect times=1", "reset-before", "delay"])
    def test_what_passes_is_got_over(
        self, cli: Cli, fault_proxy: StartFaultProxy, fault: str
    ) -> None:
        rule = fault if "connect" in fault else f"{fault} path=acquire nth=1"
        proxy = use(cli, fault_proxy("T=3", faults=(rule,)))
        handle = cli("acquire", "-t", "T").handle
        assert cli.ok("cat", "--handle", handle) == "T--00\n"
        assert proxy.leased == ["T--00"]

    def test_a_timeout_of_the_server_is_75(self, cli: Cli, fault_proxy: StartFaultProxy) -> None:
        use(cli, fault_proxy("T=1", acquire_timeout_seconds=0.2)).occupy("T", 1)
        finished = cli("acquire", "-q", "-t", "T")
        assert finished.code == 75
        assert "resources not found" in finished.err

    @pytest.mark.parametrize(
        "variant", ["traversal", "surrogate", "newline", "long", "shell", "more"]
    )
    def test_a_name_that_is_not_to_be_trusted_reaches_nothing(
        self, cli: Cli, fault_proxy: StartFaultProxy, variant: str
    ) -> None:
        use(cli, fault_proxy("T=3", faults=(f"names-hostile path=acquire variant={variant}",)))
        finished = cli("acquire", "-t", "T")
        assert finished.code == 69
        said = finished.err.splitlines()
        assert len(said) == (2 if variant == "more" else 1)  # what it says of that one, it wasn't
        assert all(line.isprintable() for line in said)
        assert list((cli.state_dir / "handles").iterdir()) == []


class TestBoskosBehindIt:
    """What ci-operator's proxy was seen to do."""

    def test_its_own_limit_for_waiting_is_75(self, cli: Cli, fault_proxy: StartFaultProxy) -> None:
        proxy = use(cli, fault_proxy("T=1", acquire_timeout_seconds=0.2))
        proxy.occupy("T")
        finished = cli("acquire", "-q", "-t", "T", "-w", "1m")
        assert finished.code == 75
        assert "resources not found" in finished.err
        assert len(proxy.history().of("request")) == 1

    def test_a_lease_that_was_taken_back_is_released_with_a_warning(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        proxy = use(cli, fault_proxy("T=2", reaped_seconds=0.2))
        handle = cli("acquire", "-t", "T", "-c", "2").handle
        proxy.reap("T--00")
        released = cli("release", "--handle", handle)
        assert (released.code, released.out) == (0, "T--00\nT--01\n")
        assert "T--00 wasn't leased to us any more" in released.err
        assert "statusCode 401" in released.err
        assert "T--01" not in released.err
        assert proxy.leased == []

    def test_so_is_one_that_the_proxy_knows_no_more(
        self, cli: Cli, proxy: FaultProxy, tmp_path: Path
    ) -> None:
        copy = tmp_path / "copy"
        handle = cli("acquire", "-t", "T").handle
        copy.write_bytes(Path(handle).read_bytes())
        cli.ok("release", "--handle", handle)
        again = cli("release", "--handle", str(copy), LEASECTL_STATE_DIR=str(tmp_path / "other"))
        assert (again.code, again.out) == (0, "")
        assert "T--00 isn't known to the lease proxy; Boskos may keep it leased" in again.err

    def test_a_release_that_boskos_refused_late_is_not_reported_as_done(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        proxy = use(cli, fault_proxy("T=1"))
        handle = cli("acquire", "-t", "T").handle
        proxy.faults('boskos-away path=release nth=1 seconds=10.5 text="statusCode 503 releasing"')
        released = cli("release", "--handle", handle)
        assert (released.code, released.out) == (0, "")
        assert "T--00 isn't known to the lease proxy; Boskos may keep it leased" in released.err
        assert "statusCode 503 releasing" in released.err
        ends = [json.loads(line) for line in cli.ok("events", "--json").splitlines()][2:]
        assert [(each["kind"], each["names"]) for each in ends] == [("not released", ["T--00"])]
        assert cli.ok("events").count("Boskos may keep it leased for half an hour") == 1

    def test_a_proxy_that_refuses_connect_was_not_asked_for_a_lease(
        self, cli: Cli, proxy: FaultProxy
    ) -> None:
        finished = cli(
            "acquire", "-q", "-t", "T", "-w", "1s",
            LEASE_PROXY_SERVER_URL="https://nowhere.invalid",
            https_proxy=proxy.url,
            LEASECTL_TRUST_ENV="1",
        )  # fmt: skip
        assert finished.code == 69
        assert "its HTTP proxy refused CONNECT" in finished.err
        assert "granted" not in finished.err

    def test_the_keeper_says_so_in_its_log(self, cli: Cli, fault_proxy: StartFaultProxy) -> None:
        proxy = use(cli, fault_proxy("T=1", reaped_seconds=0.0))
        cli.ok("acquire", "-t", "T", "--release-after", "0.3s")
        proxy.reap("T--00")
        log = cli.state_dir / "keeper.log"
        eventually(lambda: log.exists() and "wasn't leased to us any more" in log.read_text())

    def test_one_name_twice_is_given_back_once_and_is_69(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        rule = 'not-json path=acquire text="{\\"names\\":[\\"T--00\\"]}"'
        proxy = use(cli, fault_proxy("T=3", faults=(rule,)))
        finished = cli("acquire", "-q", "-t", "T", "-c", "2")
        assert finished.code == 69
        assert "granted T--00 twice" in finished.err
        assert cli.query("SELECT id FROM handle") == []
        assert [each["name"] for each in proxy.history().of("release")] == ["T--00"]

    def test_an_answer_nested_too_deeply_is_69(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        use(cli, fault_proxy("T=3", faults=("names-hostile path=acquire variant=deep",)))
        finished = cli("acquire", "-q", "-t", "T")
        assert finished.code == 69
        assert "unexpected answer from" in finished.err


class TestAllOrNothing:
    def test_what_was_had_goes_back_when_the_rest_fails(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        proxy = use(cli, fault_proxy("T=3", faults=("404 path=acquire nth=3",)))
        assert cli("acquire", "-t", "T", "-c", "3").code == 66
        assert proxy.leased == []
        assert cli.query("SELECT id FROM handle") == []

    def test_what_was_had_goes_back_at_the_deadline(self, cli: Cli, proxy: FaultProxy) -> None:
        proxy.occupy("T", 2)
        assert cli("acquire", "-t", "T", "-c", "2", "-w", "1s").code == 75
        assert proxy.leased == []

    def test_what_cannot_go_back_now_goes_back_later(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        faults = ("404 path=acquire nth=2", "500 path=release times=3")
        proxy = use(cli, fault_proxy("T=3", faults=faults))
        cli.env["LEASECTL_RELEASE_TIMEOUT"] = "0.1s"
        assert cli("acquire", "-t", "T", "-c", "2").code == 66
        eventually(lambda: proxy.leased == [])


class TestGivingUp:
    @pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_ends_the_wait_and_no_lease_is_taken_later(
        self, cli: Cli, proxy: FaultProxy, signum: signal.Signals
    ) -> None:
        held = proxy.occupy("T", 3)
        waiting = cli.start("acquire", "-t", "T")
        eventually(lambda: proxy.waiting)
        waiting.signal(signum)
        assert waiting.finish().code == -signum
        proxy.vacate(*held)
        assert proxy.leased == []
        assert cli.query("SELECT id FROM handle") == []

    def test_a_kill_ends_the_wait(self, cli: Cli, proxy: FaultProxy) -> None:
        held = proxy.occupy("T", 3)
        waiting = cli.start("acquire", "-t", "T")
        eventually(lambda: proxy.waiting)
        waiting.kill()
        eventually(lambda: not proxy.waiting)
        proxy.vacate(*held)
        assert proxy.leased == []

    def test_the_death_of_the_guard_ends_the_wait(self, cli: Cli, proxy: FaultProxy) -> None:
        proxy.occupy("T", 3)
        guard = cli.spawn(["sleep", "60"])
        waiting = cli.start("acquire", "-t", "T", "--guard-pid", str(guard.pid))
        eventually(lambda: proxy.waiting)
        guard.kill()
        assert waiting.finish().code == 75
        eventually(lambda: not proxy.waiting)

    def test_a_release_ends_the_wait(self, cli: Cli, proxy: FaultProxy) -> None:
        proxy.occupy("T", 3)
        waiting = cli.start("acquire", "-t", "T")
        eventually(lambda: proxy.waiting)
        assert cli.ok("release", "--all") == ""
        assert waiting.finish().code == 75
        eventually(lambda: not proxy.waiting)

    def test_a_grant_that_races_the_end_of_the_wait_goes_back(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        proxy = use(cli, fault_proxy("T=3", faults=("delay-after seconds=0.3 path=acquire",)))
        waiting = cli.start("acquire", "-t", "T")
        eventually(lambda: proxy.leased)
        waiting.signal(signal.SIGTERM)
        assert waiting.finish().code == -signal.SIGTERM
        assert proxy.leased == []

    def test_a_command_killed_after_the_grant_leaves_nothing(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        proxy = use(cli, fault_proxy("T=3", faults=("hang path=acquire nth=3",)))
        waiting = cli.start("acquire", "-t", "T", "-c", "3")
        eventually(lambda: len(proxy.leased) == 2 and proxy.hanging)
        waiting.kill()
        eventually(lambda: proxy.leased == [])

    def test_of_two_reacquires_the_second_waits_for_what_the_first_has_and_gives_back(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        proxy = use(cli, fault_proxy("T=2", faults=("hang path=acquire nth=4",)))
        handle = cli("acquire", "-t", "T", "-c", "2").handle
        first = cli.start("reacquire", "--handle", handle)
        eventually(lambda: len(proxy.leased) == 1 and proxy.hanging)
        second = cli("reacquire", "--handle", handle, "-w", "20s")
        assert second.code == 0, second.err
        assert first.finish().code == 75
        assert sorted(proxy.leased) == sorted(cli.ok("cat", "--handle", handle).split())
        assert len(proxy.leased) == 2
        assert cli("release", "--handle", handle).code == 0
        assert proxy.leased == []

    def test_of_two_reacquires_the_second_gives_up_where_the_first_is_stopped(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        proxy = use(cli, fault_proxy("T=2", faults=("hang path=acquire nth=4",)))
        handle = cli("acquire", "-t", "T", "-c", "2").handle
        first = cli.start("reacquire", "--handle", handle)
        eventually(lambda: len(proxy.leased) == 1 and proxy.hanging)
        first.signal(signal.SIGSTOP)
        second = cli("reacquire", "--handle", handle, "-w", "0.2s")
        told = f"handle .* is still being acquired by process {first.process.pid}"
        assert (second.code, bool(re.search(told, second.err))) == (75, True), second.err
        first.signal(signal.SIGCONT)
        assert first.finish().code == 75
        eventually(lambda: proxy.leased == [])

    def test_a_reacquire_killed_after_a_part_of_the_grant_leaves_nothing(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        proxy = use(cli, fault_proxy("T=2", faults=("hang path=acquire nth=4",)))
        handle = cli("acquire", "-t", "T", "-c", "2").handle
        waiting = cli.start("reacquire", "--handle", handle)
        eventually(lambda: len(proxy.leased) == 1 and proxy.hanging)
        waiting.kill()
        eventually(lambda: proxy.leased == [])


class TestReachingIt:
    def test_no_server_is_69_and_not_tried_for_ever(self, cli: Cli, proxy: FaultProxy) -> None:
        proxy.kill()
        finished = cli("acquire", "-q", "-t", "T")
        assert finished.code == 69
        assert finished.err.count("\n") == 1

    def test_a_server_that_comes_in_time_is_reached(self, cli: Cli, proxy: FaultProxy) -> None:
        proxy.refuse(1.0)
        assert cli("acquire", "-t", "T", "-w", "20s").code == 0

    def test_proxies_of_the_environment_are_not_for_it(self, cli: Cli, proxy: FaultProxy) -> None:
        nowhere = "http://127.0.0.1:9"
        assert cli("acquire", "-t", "T", http_proxy=nowhere, HTTP_PROXY=nowhere).code == 0
        asked = cli("acquire", "-t", "T", http_proxy=nowhere, LEASECTL_TRUST_ENV="1")
        assert asked.code == 69

    def test_the_token_is_sent_and_told_to_nobody(
        self, cli: Cli, proxy: FaultProxy, tmp_path: Path
    ) -> None:
        token = tmp_path / "token"
        token.write_text("s3cret\n")
        cli.env["LEASECTL_TOKEN_FILE"] = str(token)
        cli.ok("acquire", "-t", "T", "--release-after", "0.2s")
        eventually(lambda: proxy.leased == [])
        assert all(each["authorization"] for each in proxy.history().of("request"))
        state = b"".join(p.read_bytes() for p in cli.state_dir.rglob("*") if p.is_file())
        assert b"s3cret" not in state
        token.write_text("")
        assert cli("acquire", "-t", "T").code == 65
        token.unlink()
        missing = cli("acquire", "-t", "T")
        assert missing.code == 64
        assert f"token file {token}: No such file" in missing.err
        assert "LEASECTL_TOKEN_FILE" in missing.err

    @pytest.mark.parametrize(
        "command",
        [
            ("run", "-t", "T", "--optional", "-w", "5s", "--", "true"),
            ("acquire", "-t", "T", "--optional", "-w", "5s"),
            ("release", "--names", "T--00"),
            ("status",),
            ("doctor",),
        ],
        ids=lambda command: command[0],
    )
    def test_a_token_file_that_isnt_there_is_64_everywhere(
        self, cli: Cli, proxy: FaultProxy, tmp_path: Path, command: tuple[str, ...]
    ) -> None:
        cli.env["LEASECTL_TOKEN_FILE"] = str(tmp_path / "missing")
        assert cli(*command).code == 64
        assert proxy.history().of("request") == []
        del cli.env["LEASECTL_TOKEN_FILE"]
        assert cli("doctor").code == 0  # and nothing is left of it


class TestReleases:
    def test_what_cannot_be_released_stays_in_the_record(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        faults = ("500 path=release",)
        proxy = use(cli, fault_proxy("T=3", faults=faults))
        cli.env["LEASECTL_RELEASE_TIMEOUT"] = "0.3s"
        handle = cli("acquire", "-t", "T", "-c", "2").handle
        failed = cli("release", "--handle", handle)
        assert (failed.code, failed.out) == (69, "")
        assert cli.ok("cat", "--handle", handle) == "T--00\nT--01\n"
        proxy.faults()
        assert cli.ok("release", "--handle", handle) == "T--00\nT--01\n"

    def test_what_fails_says_how_long_it_was_tried_in_all(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        proxy = use(cli, fault_proxy("T=3", faults=("hang path=release",)))
        handle = cli("acquire", "-t", "T", "-c", "2").handle
        failed = cli("release", "--handle", handle, LEASECTL_RELEASE_TIMEOUT="0.4s")
        assert failed.code == 69
        said = re.search(
            f"not released within (.*)s: no answer from {proxy.url} in time", failed.err
        )
        assert said is not None, failed
        assert float(said[1]) >= 0.4

    def test_how_long_it_may_take_is_said_by_who_releases(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        use(cli, fault_proxy("T=3"))
        handle = cli("acquire", "-t", "T").handle
        failed = cli("release", "--handle", handle, LEASECTL_RELEASE_TIMEOUT="0")
        assert failed.code == 69
        assert "no time to release T--00" in failed.err
        assert cli.ok("release", "--handle", handle) == "T--00\n"

    def test_one_that_fails_does_not_keep_the_others(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        proxy = use(cli, fault_proxy("T=3"))
        cli.env["LEASECTL_RELEASE_TIMEOUT"] = "2s"
        handle = cli("acquire", "-t", "T", "-c", "3").handle
        later = ",".join(map(str, range(4, 30)))
        proxy.faults(f"hang path=release nth=2,{later}")
        failed = cli("release", "--handle", handle)
        assert (failed.code, failed.out) == (69, "T--00\nT--02\n")
        assert cli.ok("cat", "--handle", handle) == "T--01\n"
        assert proxy.leased == ["T--01"]
        proxy.faults()
        assert cli.ok("release", "--handle", handle) == "T--01\n"
        assert proxy.leased == []

    def test_a_lost_answer_to_a_release_is_asked_for_again(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        proxy = use(cli, fault_proxy("T=3", faults=("reset-after path=release nth=1",)))
        handle = cli("acquire", "-t", "T").handle
        assert cli.ok("release", "--handle", handle) == "T--00\n"
        assert proxy.leased == []

    def test_a_slow_drip_does_not_stretch_the_time(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        use(cli, fault_proxy("T=3", faults=("drip path=release seconds=0.5",)))
        cli.env["LEASECTL_RELEASE_TIMEOUT"] = "1s"
        handle = cli("acquire", "-t", "T").handle
        # The whole answer takes longer than a command has here to end.
        assert cli("release", "--handle", handle).code == 69

    def test_a_name_whose_release_is_under_way_is_not_taken_over(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        proxy = use(cli, fault_proxy("T=1", faults=("delay-after seconds=1 path=release nth=1",)))
        first = cli("acquire", "-t", "T").handle
        releasing = cli.start("release", "--handle", first)
        eventually(lambda: proxy.leased == [])
        second = cli("acquire", "-t", "T", "-w", "10s").handle
        assert releasing.finish().out == "T--00\n"
        assert proxy.leased == cli.ok("cat", "--handle", second).split() == ["T--00"]
        assert accounted_for(cli, proxy)


@pytest.mark.parametrize("seed", range(9 if FULL_SIZE else 1))
def test_of_many_clients_and_faults_nothing_is_left(
    cli: Cli, fault_proxy: StartFaultProxy, seed: int
) -> None:
    fault = "500|reset-before|reset-after|close-keepalive|drip|half rate=0.2"
    proxy = use(cli, fault_proxy("T=3", faults=(fault,), idempotent=True, seed=seed))

    def take_and_give_back() -> None:
        for _ in range(4):
            got = cli.start("acquire", "-q", "-t", "T", "-w", "60s").finish()
            if got.code == 0:
                cli.ok("release", "--handle", got.handle)

    pids = [fork(take_and_give_back) for _ in range(6)]
    assert [ending(pid) for pid in pids] == [0] * 6
    eventually(lambda: proxy.leased == [])
    assert accounted_for(cli, proxy)


def test_json_says_what_the_server_does_not_tell(cli: Cli, proxy: FaultProxy) -> None:
    handle = cli("acquire", "-t", "T").handle
    shown = json.loads(cli.ok("cat", "--handle", handle, "--format", "json"))
    assert shown["backend"] == proxy.url
    assert shown["leases"][0]["fence"] is None
    assert os.path.basename(handle) in shown["leases"][0]["holder_identity"]


class TestUnresolvedReleases:
    def test_what_a_killed_release_left_is_not_handed_back_for_ever(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        proxy = use(cli, fault_proxy("T=1", faults=("delay-after seconds=60 path=release nth=1",)))
        first = cli("acquire", "-t", "T").handle
        releasing = cli.start("release", "--handle", first)
        eventually(lambda: proxy.leased == [])
        releasing.kill()
        second = cli("acquire", "-q", "-t", "T", "-w", "20s").handle
        assert proxy.leased == ["T--00"]
        assert len(proxy.history().of("grant")) == 2
        # The record of the first no longer says so, and can't release what is the second's.
        assert cli.ok("cat", "--handle", first) == ""
        assert cli.ok("release", "--handle", first) == ""
        assert proxy.leased == cli.ok("cat", "--handle", second).split()

    def test_a_failed_release_does_not_keep_its_name_from_others(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        proxy = use(cli, fault_proxy("T=1", faults=("hang-after path=release nth=1",)))
        cli.env["LEASECTL_RELEASE_TIMEOUT"] = "0.3s"
        first = cli("acquire", "-t", "T").handle
        assert cli("release", "--handle", first).code == 69
        assert cli.query("SELECT name FROM giving_back") == []
        second = cli("acquire", "-q", "-t", "T", "-w", "20s").handle
        assert cli.ok("cat", "--handle", second) == "T--00\n"
        assert len(proxy.history().of("grant")) == 2

    def test_each_lease_is_given_back_once_also_where_run_and_its_keeper_see_the_end_at_once(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        proxy = use(cli, fault_proxy("T=2", faults=()))
        cli.ok("acquire", "-q", "-t", "T", "--release-after", "1h")  # so that it is awake
        for _ in range(20):
            assert cli("run", "-q", "T", "--", "sleep", "0.05").code == 0
        paths = [each["path"] for each in proxy.history().of("request")]
        assert paths.count("/lease/release") == 20


class _GoneAfterAWhile(Connection):
    """A connection whose first request waits for an hour, and then finds the server gone."""

    def __init__(self) -> None:
        self.asked = 0
        self.late_by = 0.0
        self.clock = Clock(elapsed=lambda: boottime_seconds() + self.late_by)

    def ask(self, path: str, **_: object) -> Answer:
        self.asked += 1
        if self.asked == 1:
            self.late_by += 3600
            raise NotSent("it went away")
        return Answer(200, '{"names": ["T--00"]}', {})


def test_a_server_that_goes_after_a_long_wait_is_given_time_to_come_back() -> None:
    connection = _GoneAfterAWhile()
    backend = ProxyBackend(
        "http://x",
        cast(State, None),
        connection,
        release_seconds=1,
        warn=print,
        clock=connection.clock,
    )
    claimant = Claimant("T-1", "T-1", Request("T"))
    journal = _Journal()
    backend.acquire(claimant, journal, Patience())
    assert [lease.name for lease in journal.leases or ()] == ["T--00"]
    assert connection.asked == 2


class _Journal(NoJournal):
    key = "T-1/1"

    def arrived(self, name: str) -> Lease:
        return Lease(name, 0, 0, 0, "T-1", 0, 0, None, 0)

    def returning(self, name: str) -> None:
        pass

    def returned(self, name: str) -> None:
        """Not noted."""

    def lost_reply(self) -> None:
        """Not noted."""

    def to_undo(self) -> None:
        """Not noted."""

    def found(self) -> None:
        """Not noted."""


@pytest.mark.parametrize("variable", ["SHARED_DIR", "LEASECTL_TOKEN_FILE"])
def test_a_path_that_is_no_text_is_refused(cli: Cli, variable: str) -> None:
    finished = cli("acquire", "-t", "T", **{variable: "/tmp/\udcff"})
    assert (finished.code, finished.err.count("\n")) == (64, 1)
