"""The lease proxy's client, against a real server that goes wrong on demand."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from tests.kit.faults.history import names_in_handles
from tests.kit.faults.process import FaultProxy, StartFaultProxy
from tests.kit.forking import ending, fork
from tests.kit.killing import FULL_SIZE
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

    def test_run_holds_a_lease_while_its_command_runs(self, cli: Cli, proxy: FaultProxy) -> None:
        script = 'printf %s "$LEASECTL_NAMES/$LEASECTL_FENCE"; exit 3'
        finished = cli("run", "-t", "T", "--", "sh", "-c", script)
        assert (finished.code, finished.out) == (3, "T--00/")
        assert proxy.leased == []


class TestWhatTheProtocolCannotDo:
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

    @pytest.mark.parametrize("fault", ["not-json", "reset-after"])
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
        cli.env["LEASECTL_RELEASE_TIMEOUT"] = "1s"
        assert cli("acquire", "-t", "T").code == 69
        assert cli.query("SELECT state FROM handle") == []  # nothing is left for the keeper
        assert [each["path"] for each in proxy.history().of("request")].count("/lease/release") == 1

    @pytest.mark.parametrize("variant", ["traversal", "newline", "more"])
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
        finished = cli("acquire", "-q", "-t", "T", "-w", "5m")
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
        assert "T--00 was no longer leased to us" in released.err
        assert "statusCode 401" in released.err
        assert "T--01" not in released.err
        assert proxy.leased == []

    def test_a_release_that_boskos_refused_is_not_reported_as_done(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        proxy = use(cli, fault_proxy("T=1"))
        handle = cli("acquire", "-t", "T").handle
        proxy.faults('boskos-away path=release nth=1 seconds=0.1 text="statusCode 503 releasing"')
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

    def test_what_cannot_go_back_now_goes_back_later(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        faults = ("404 path=acquire nth=2", "500 path=release times=3")
        proxy = use(cli, fault_proxy("T=3", faults=faults))
        cli.env["LEASECTL_RELEASE_TIMEOUT"] = "0.1s"
        assert cli("acquire", "-t", "T", "-c", "2").code == 66
        eventually(lambda: proxy.leased == [])


class TestGivingUp:
    def test_a_signal_ends_the_wait_and_no_lease_is_taken_later(
        self, cli: Cli, proxy: FaultProxy
    ) -> None:
        held = proxy.occupy("T", 3)
        waiting = cli.start("acquire", "-t", "T")
        eventually(lambda: proxy.waiting)
        waiting.signal(signal.SIGTERM)
        assert waiting.finish().code == -signal.SIGTERM
        proxy.vacate(*held)
        assert proxy.leased == []
        assert cli.query("SELECT id FROM handle") == []

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
        second = cli("reacquire", "--handle", handle, "-w", "5m")
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


class TestReachingIt:
    def test_proxies_of_the_environment_are_not_for_it(self, cli: Cli, proxy: FaultProxy) -> None:
        nowhere = "http://127.0.0.1:9"
        assert cli("acquire", "-t", "T", http_proxy=nowhere, HTTP_PROXY=nowhere).code == 0
        now = ("--connect-timeout", "0")
        asked = cli("acquire", "-t", "T", *now, http_proxy=nowhere, LEASECTL_TRUST_ENV="1")
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
    def test_how_long_it_may_take_is_said_by_who_releases(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        use(cli, fault_proxy("T=3"))
        handle = cli("acquire", "-t", "T").handle
        failed = cli("release", "--handle", handle, LEASECTL_RELEASE_TIMEOUT="0")
        assert failed.code == 69
        assert "no time was left to release T--00" in failed.err
        assert cli.ok("release", "--handle", handle) == "T--00\n"

    def test_a_name_whose_release_is_under_way_is_not_taken_over(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        proxy = use(cli, fault_proxy("T=1", faults=("delay-after seconds=1 path=release nth=1",)))
        first = cli("acquire", "-t", "T").handle
        releasing = cli.start("release", "--handle", first)
        eventually(lambda: proxy.leased == [])
        second = cli("acquire", "-t", "T", "-w", "5m").handle
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
            got = cli.start("acquire", "-q", "-t", "T", "-w", "5m").finish()
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
        second = cli("acquire", "-q", "-t", "T", "-w", "5m").handle
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
        second = cli("acquire", "-q", "-t", "T", "-w", "5m").handle
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


@pytest.mark.parametrize("variable", ["SHARED_DIR", "LEASECTL_TOKEN_FILE"])
def test_a_path_that_is_no_text_is_refused(cli: Cli, variable: str) -> None:
    finished = cli("acquire", "-t", "T", **{variable: "/tmp/\udcff"})
    assert (finished.code, finished.err.count("\n")) == (64, 1)
