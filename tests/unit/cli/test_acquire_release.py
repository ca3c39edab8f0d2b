"""``acquire``, ``cat``, ``release``, ``reacquire`` and ``renew``, as scripts run them."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from leasectl.system.clock import boottime_seconds
from tests.kit.support import Cli, Started
from tests.kit.terminal import terminal
from tests.kit.waits import end_of, eventually

NO_LEASE, USAGE, NOT_FOUND, NOT_ALLOWED, LOST = 75, 64, 66, 77, 79
RFC3339 = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"


@pytest.fixture
def cli(cli: Cli) -> Cli:
    cli.pool("T")  # T--00 and T--01
    return cli


def waiting(cli: Cli, *args: str) -> Started:
    """Start a command that has to wait, and see it in the queue."""
    before = len(cli.waiting())
    started = cli.start(*args)
    eventually(lambda: len(cli.waiting()) > before)
    return started


class TestTheMainLine:
    def test_stdout_carries_a_path_a_name_and_the_released_name(self, cli: Cli) -> None:
        handle = cli.ok("acquire", "-t", "T")
        path = re.escape(str(cli.state_dir / "handles"))
        assert re.fullmatch(rf"{path}/T-[A-Za-z0-9]{{6}}\n", handle)
        handle = handle.rstrip("\n")
        assert cli.ok("cat", "--handle", handle) == "T--00\n"
        assert cli.ok("release", "--handle", handle) == "T--00\n"
        assert cli.held() == {}

    def test_the_names_file_has_no_final_newline(self, cli: Cli) -> None:
        handle = Path(cli("acquire", "-t", "T", "-c", "2").handle)
        assert handle.read_bytes() == b"T--00\nT--01"
        cli.ok("release", "--handle", str(handle))
        assert handle.read_bytes() == b""


class TestOutput:
    def test_json_is_what_cat_says(self, cli: Cli) -> None:
        said = json.loads(cli.ok("acquire", "-t", "T", "--output", "json"))
        catted = json.loads(cli.ok("cat", "--handle", said["handle"], "--format", "json"))
        assert said == catted
        assert said["state"] == "held"

    def test_env_is_for_eval(self, cli: Cli) -> None:
        script = (
            # A child of the shell sees it, too.
            'out=$("$@") && eval "$out" && '
            "bash -c 'echo \"$LEASECTL_HANDLE|$LEASECTL_NAMES|$LEASECTL_FENCE\"'"
        )
        command = cli.command("acquire", "-t", "T", "-c", "2", "--output", "env")
        finished = cli.spawn(["bash", "-euc", script, "-", *command]).finish()
        handle, names, fences = finished.out.rstrip("\n").split("|")
        assert (names, fences) == ("T--00,T--01", "1,2")
        assert Path(handle).read_text() == "T--00\nT--01"

    def test_env_is_safe_whatever_the_path_is(self, tmp_path: Path) -> None:
        odd = Cli(tmp_path / 'it\'s $(touch pwned) "odd"', tmp_path)
        odd.pool("T")
        script = 'out=$("$@") && eval "$out" && cat "$LEASECTL_HANDLE"'
        command = odd.command("acquire", "-t", "T", "--output", "env")
        finished = odd.spawn(["bash", "-euc", script, "-", *command]).finish()
        assert (finished.code, finished.out) == (0, "T--00")
        assert not (tmp_path / "pwned").exists()


class TestCat:
    def test_json_says_all_there_is_to_say(self, cli: Cli) -> None:
        guard = str(os.getpid())
        args = ("--guard-pid", guard, "--label", "pr=7", "--release-after", "1h", "--ttl", "90s")
        handle = cli("acquire", "-t", "T", *args).handle
        said = json.loads(cli.ok("cat", "--handle", handle, "--format", "json"))
        (lease,) = said.pop("leases")
        assert said["release_time"] == said["release_at"]
        del said["release_time"]
        release_at = said.pop("release_at")
        assert re.fullmatch(RFC3339, release_at)
        assert said == {
            "handle": handle,
            "backend": "local:",
            "type": "T",
            "types": ["T"],
            "count": 1,
            "each": False,
            "scope": "step",
            "priority": 0,
            "where": [],
            "on_reclaim": "keep",
            "state": "held",
            "acquisition": 1,
        }
        assert re.fullmatch(RFC3339, lease.pop("acquire_time"))
        assert re.fullmatch(RFC3339, lease.pop("renew_time"))
        assert lease.pop("holder_identity").endswith(os.path.basename(handle))
        assert lease == {
            "name": "T--00",
            "lease_duration_seconds": 90,
            "lease_transitions": 0,
            "fence": 1,
            "grant": 1,
            "ticket": 1,
            "guard_pid": os.getpid(),
            "release_at": release_at,
            "labels": {"pr": "7"},
            "properties": {},
            "in_use": False,
        }
        cli.ok("use", handle, "--name", "T--00")
        (lease,) = json.loads(cli.ok("cat", handle, "--json"))["leases"]
        assert lease["in_use"]

    def test_a_name_that_is_released_sooner_is_told_of(self, cli: Cli) -> None:
        handle = cli("acquire", "-t", "T", "-c", "2", "--release-after", "1h").handle
        cli.ok("release", "--names", "T--01", "--delay", "5m", "--detach")
        leases = json.loads(cli.ok("cat", handle, "--json"))["leases"]
        (pool,) = json.loads(cli.ok("status", "--json"))["pools"]
        held = [each for each in pool["resources"] if each["state"] == "held"]
        for first, second in (leases, held):
            assert first["release_at"] > second["release_at"]
        assert re.search(r"in 4m\d+s \(release\)", cli.ok("status", "-t", "T"))


class TestHolders:
    def test_jobs_of_similar_names_are_not_the_same_owner(self, cli: Cli) -> None:
        for given, other in (
            ("team/app", "team-app"),
            ("é", "-"),
            ("j" * 300 + "a", "j" * 300 + "b"),
        ):
            handle = cli.ok("acquire", "-t", "T", JOB_NAME=given, BUILD_ID="7").strip()
            name = cli.ok("cat", handle).strip()
            refused = cli("release", "--names", name, JOB_NAME=other, BUILD_ID="7")
            assert refused.code == NOT_ALLOWED
            assert f"held by {given[:150]}" in refused.err
            (pool,) = json.loads(cli.ok("status", "-t", "T", "--json"))["pools"]
            (held,) = [each for each in pool["resources"] if each["state"] == "held"]
            assert held["job"][:150] == given[:150]
            cli.ok("release", handle)

    @pytest.mark.parametrize(
        ("ci", "owner", "url"),
        [
            (
                {
                    "GITHUB_ACTIONS": "true",
                    "GITHUB_REPOSITORY": "o/r",
                    "GITHUB_WORKFLOW": "Nightly tests",
                    "GITHUB_JOB": "e2e",
                    "GITHUB_RUN_ID": "12",
                    "GITHUB_RUN_ATTEMPT": "2",
                    "GITHUB_SERVER_URL": "https://github.com",
                },
                "o/r/Nightly tests/e2e/12-2",
                "https://github.com/o/r/actions/runs/12",
            ),
            (
                {
                    "GITLAB_CI": "true",
                    "CI_PROJECT_PATH": "g/p",
                    "CI_JOB_NAME": "e2e: [a]",
                    "CI_JOB_ID": "77",
                    "CI_JOB_URL": "https://gitlab.example/g/p/-/jobs/77",
                },
                "g/p/e2e: [a]/77",
                "https://gitlab.example/g/p/-/jobs/77",
            ),
            (
                {
                    "BUILDKITE": "true",
                    "BUILDKITE_ORGANIZATION_SLUG": "o",
                    "BUILDKITE_PIPELINE_SLUG": "p",
                    "BUILDKITE_BUILD_NUMBER": "5",
                    "BUILDKITE_JOB_ID": "0a1b",
                    "BUILDKITE_BUILD_URL": "https://buildkite.com/o/p/builds/5",
                },
                "o/p/5-0a1b",
                "https://buildkite.com/o/p/builds/5#0a1b",
            ),
            (
                {
                    "CIRCLECI": "true",
                    "CIRCLE_PROJECT_REPONAME": "r",
                    "CIRCLE_JOB": "e2e",
                    "CIRCLE_BUILD_NUM": "9",
                    "CIRCLE_NODE_INDEX": "0",
                    "CIRCLE_BUILD_URL": "javascript:alert(1)",
                },
                "r/e2e/9-0",
                None,
            ),
            (
                {
                    "TF_BUILD": "True",
                    "SYSTEM_TEAMPROJECT": "My team",
                    "BUILD_DEFINITIONNAME": "nightly",
                    "BUILD_BUILDID": "3",
                    "SYSTEM_JOBID": "c0de",
                    "SYSTEM_COLLECTIONURI": "https://dev.azure.com/o/",
                },
                "My team/nightly/3-c0de",
                "https://dev.azure.com/o/My%20team/_build/results?buildId=3",
            ),
            (
                {"JOB_NAME": "folder/job", "BUILD_ID": "4", "BUILD_URL": "http://jenkins/4/"},
                "folder/job/4",
                "http://jenkins/4/",
            ),
        ],
    )
    def test_a_ci_system_says_the_job_the_build_and_its_address(
        self, cli: Cli, ci: dict[str, str], owner: str, url: str | None
    ) -> None:
        cli.ok("acquire", "-t", "T", **ci)
        (pool,) = json.loads(cli.ok("status", "-t", "T", "--json"))["pools"]
        (held,) = [each for each in pool["resources"] if each["state"] == "held"]
        assert (held["owner"], held["labels"].get("build")) == (owner, url)
        refused = cli("release", "--names", held["name"])
        assert refused.code == NOT_ALLOWED

    def test_a_release_by_name_is_for_the_same_job_and_build_only(self, cli: Cli) -> None:
        mine = {"JOB_NAME": "job", "BUILD_ID": "1"}
        cli.ok("acquire", "-t", "T", **mine)
        for other in ({"JOB_NAME": "job", "BUILD_ID": "2"}, {"JOB_NAME": "j", "BUILD_ID": "1"}, {}):
            finished = cli("release", "--names", "T--00", **other)
            assert (finished.code, finished.out) == (NOT_ALLOWED, ""), other
            assert "is held by job/1/" in finished.err
        assert cli.ok("release", "--names", "T--00", **mine) == "T--00\n"


class TestReleaseForms:
    def test_by_names(self, cli: Cli) -> None:
        cli.ok("acquire", "-t", "T", "-c", "2")
        assert cli.ok("release", "--names", "T--01") == "T--01\n"
        assert cli.ok("release", "-n", "T--00,T--01") == "T--00\n"
        assert cli.ok("release", "--names", "T--00,T--01") == ""

    def test_by_name_of_a_free_resource_says_so_at_a_terminal(self, cli: Cli) -> None:
        cli.pool("U")  # it has a resource of the same short name
        env = {name: str(text) for name, text in cli.env.items()}
        with terminal(cli.command("release", "--names", "--01"), env, cli.cwd) as there:
            there.until("nothing to release: no lease of --01 found")
            assert there.ending() == 0
        assert cli("release", "--names", "--01").err == ""
        assert "nobody held --01;" in cli("release", "--names", "--01", "--force").err

    def test_by_what_status_shows_of_names_and_handles(self, cli: Cli) -> None:
        cli.pool("U")
        short = cli.hold("T").id.rpartition("-")[2]
        assert cli.ok("cat", short) == "T--00\n"
        assert cli.ok("release", short) == "T--00\n"
        cli.ok("acquire", "T")
        (held,) = re.findall(r"T(--\d\d)", cli.ok("status", "T", "--held"))
        assert cli.ok("release", "--names", held) == f"T{held}\n"
        assert cli.ok("release", "--names", held) == ""  # as with its whole name
        assert cli("release", "--names", "--77").code == NOT_FOUND
        cli.ok("acquire", "T", "-c", "2"), cli.ok("acquire", "U", "-c", "2")
        several = cli("release", "--names", "--01")
        assert (several.code, "T--01, U--01" in several.err) == (USAGE, True)
        assert cli("release", "--names", "--01", "--force").code == USAGE

    def test_later_in_the_foreground_is_void_after_a_reacquire(self, cli: Cli) -> None:
        handle = cli("acquire", "-t", "T").handle
        later = cli.start("release", "--handle", handle, "--delay", "0.5")
        eventually(lambda: is_asleep(later.pid))
        cli.ok("reacquire", "--handle", handle)
        finished = later.finish()
        assert (finished.code, finished.out) == (0, "")
        assert len(cli.held()) == 1

    def test_later_by_the_keeper(self, cli: Cli) -> None:
        handle = cli("acquire", "-t", "T").handle
        armed = ("release", "--handle", handle, "--detach", "--delay")
        assert cli(*armed, "1h", "-q").err == ""
        finished = cli(*armed, "0.2")
        assert (finished.code, finished.out) == (0, "")
        assert re.match(r"leasectl: T--00 will be released in 0s, at ", finished.err)
        eventually(lambda: not cli.held())


class TestReacquire:
    def test_in_vain_has_an_exit_code_of_its_own_choice(self, cli: Cli) -> None:
        handle = cli("acquire", "-t", "T").handle
        cli.ok("release", "--handle", handle)
        cli.ok("acquire", "-t", "T", "-c", "2")
        assert cli("reacquire", "--handle", handle, "-w", "0").code == NO_LEASE
        assert cli("reacquire", "--handle", handle, "-w", "0", "-E", "7").code == 7

    def test_of_a_copy_is_refused(self, cli: Cli, tmp_path: Path) -> None:
        copy = tmp_path / "copy"
        copy.write_bytes(Path(cli("acquire", "-t", "T").handle).read_bytes())
        for command, done in (("reacquire", "reacquired"), ("renew", "renewed")):
            finished = cli(command, "--handle", str(copy))
            assert finished.code == NOT_FOUND
            assert f"is not a handle of {cli.state_dir}, so it can't be {done}; " in finished.err

    def test_of_another_state_directory_is_named_so(self, cli: Cli, tmp_path: Path) -> None:
        handle = cli("acquire", "-t", "T").handle
        finished = cli("release", handle, LEASECTL_STATE_DIR=str(tmp_path / "other"))
        assert finished.code == NOT_FOUND
        assert f"{handle} is not a handle of {tmp_path}/other, so it can't be" in finished.err


class TestAnExplicitTtl:
    """Without a guard it is renewed by ``leasectl renew`` alone."""

    def test_the_next_waiter_has_it_without_anybodys_call(self, cli: Cli) -> None:
        cli.ok("pool", "create", "one", "--count", "1")
        handle = cli("acquire", "-t", "one", "--ttl", "2s").handle
        next_one = cli("acquire", "-q", "-t", "one", "-w", "10m")
        assert next_one.code == 0
        assert cli.keepers() == []
        assert cli("renew", "--handle", handle).code == LOST


class TestRenew:
    def test_prints_the_new_expiry(self, cli: Cli) -> None:
        handle = cli("acquire", "-t", "T", "--ttl", "1h").handle
        assert re.fullmatch(RFC3339 + "\n", cli.ok("renew", "--handle", handle))

    def test_a_ttl_that_makes_no_sense_is_refused(self, cli: Cli) -> None:
        for_ever = cli("acquire", "-t", "T").handle
        handle = cli("acquire", "-t", "T", "--ttl", "1h").handle
        for path, ttl, why in ((for_ever, "1h", "doesn't expire"), (handle, "1s", "too short")):
            refused = cli("renew", path, "--ttl", ttl)
            assert (refused.code, refused.out) == (USAGE, "")
            assert why in refused.err

    def test_a_run_counts_on_the_ttl_that_it_began_with(self, cli: Cli) -> None:
        script = '"$0" -m leasectl renew "$LEASECTL_HANDLE" --ttl 2h'
        run = cli("run", "-t", "T", "--ttl", "1h", "--", "sh", "-c", script, sys.executable)
        assert run.code == USAGE
        assert "is renewed by leasectl run" in run.err

    def test_a_delayed_release_is_put_off_by_asking_again(self, cli: Cli) -> None:
        handle = cli("acquire", "-t", "T", "--release-after", "1m").handle
        cli.ok("release", handle, "--delay", "2h", "--detach")
        ((due,),) = cli.query("SELECT due FROM timer")
        assert float(str(due)) > boottime_seconds() + 7100

    def test_it_says_what_is_released_before_it_expires(self, cli: Cli) -> None:
        handle = cli("acquire", "-t", "T", "--release-after", "2h").handle
        renewed = cli("renew", handle)
        assert (renewed.code, renewed.out) == (0, "never\n")
        assert f"{os.path.basename(handle)} is released in 1h59m" in renewed.err
        assert "--delay D --detach" in renewed.err
        later = cli("acquire", "-t", "T", "--release-after", "2h", "--ttl", "1h").handle
        assert cli("renew", later).err == ""
        sooner = cli("renew", later, "--ttl", "3h")
        assert " is released in 1h59m" in sooner.err

    def test_of_what_was_given_back_is_refused(self, cli: Cli) -> None:
        handle = cli("acquire", "-t", "T").handle
        cli.ok("release", "--handle", handle)
        assert cli("renew", "--handle", handle).code == NOT_ALLOWED


class TestInVain:
    def test_the_exit_code_says_so(self, cli: Cli) -> None:
        cli.ok("acquire", "-t", "T", "-c", "2")
        finished = cli("acquire", "-t", "T", "-w", "0")
        assert (finished.code, finished.out) == (NO_LEASE, "")
        assert finished.err == (
            'leasectl: no lease of "T": 2 of 2 held, nobody else waiting; '
            "see the holders with: leasectl status -t T\n"
        )

    def test_what_is_free_and_cannot_be_had_is_told_with_why(self, cli: Cli) -> None:
        cli.ok("pool", "set", "T", "--default", "--grace", "90m")
        cli.ok("pool", "add", "T", "--names", "came-just-now")
        cli.ok("pool", "cordon", "--names", "T--00,T--01")
        why = r"2 cordoned, 1 held back for 1h(30m|29m\d*s?)"
        refused = cli("acquire", "-t", "T", "-w", "0")
        assert refused.code == NO_LEASE
        assert re.search(rf"0 of 3 held \({why}\), nobody else", refused.err)
        waiter = waiting(cli, "acquire", "-t", "T", "-w", "1h")
        cli.ok("pool", "uncordon", "--names", "T--00")
        waited = waiter.finish()
        assert waited.code == 0
        assert re.search(rf"0/3 held, waited \d+s, {why}, gives up", waited.err)

    def test_the_exit_code_can_be_chosen_for_that_only(self, cli: Cli) -> None:
        cli.ok("acquire", "-t", "T", "-c", "2")
        for code in (0, 255):
            assert cli("acquire", "-t", "T", "-w", "0", "-E", str(code)).code == code
        assert cli("acquire", "-t", "U", "-E", "7").code == NOT_FOUND


class TestWaiting:
    def test_a_log_gets_one_line_at_the_start_and_one_at_the_end(self, cli: Cli) -> None:
        first = cli("acquire", "-t", "T", "-c", "2").handle
        waiter = waiting(cli, "acquire", "-t", "T", "-w", "1h")
        cli.ok("release", "--handle", first)
        finished = waiter.finish()
        start, end = finished.err.splitlines()
        assert re.search(r"waiting for T: position 1, 2/2 held, .*gives up in 1h", start)
        assert re.fullmatch(r"leasectl: got T--00 after \d+s", end)

    def test_what_will_happen_by_itself_is_said(self, cli: Cli) -> None:
        at_once = cli("acquire", "T", "--release-after", "20m")
        said = r"leasectl: T--00 will be released in 20m, at [\d:]{8} UTC \(--release-after\)\n"
        assert re.fullmatch(said, at_once.err)
        assert cli("acquire", "T", "--release-after", "20m", "-q").err == ""
        waiter = cli.start("run", "T", "--release-after", "1h", "--", "true")
        eventually(cli.waiting)
        cli.ok("release", at_once.handle)
        end = waiter.finish().err.splitlines()[-1]
        assert re.match(r"leasectl: got T--00 after \d+s; to be released in 1h, at ", end)
        # Once is enough.
        again = cli("reacquire", at_once.handle, "-w", "0").err
        assert "will be released in 20m" in again and again.count("\n") == 1

    @pytest.mark.parametrize(
        ("args", "rule"),
        [
            (("-c", "2"), "needs 2 at once"),
            (("--name", "T--00"), "only T--00 will do"),
        ],
    )
    def test_the_rule_that_holds_it_back_from_what_is_free_is_said(
        self, cli: Cli, args: tuple[str, ...], rule: str
    ) -> None:
        held = cli("acquire", "T").handle
        waiter = waiting(cli, "acquire", "T", *args)
        cli.ok("release", held)
        # How long it is likely to take may be said already: that depends on what it saw first.
        line = rf"1/2 held, waited 0s, {rule}, (likely [^,]+ more, )?oldest lease "
        assert re.search(line, waiter.finish().err)

    def test_an_error_says_which_rule_holds_it_back(self, cli: Cli) -> None:
        cli.ok("acquire", "T")
        for args, rule in (
            (("-c", "2"), "needs 2 at once"),
            (("--name", "T--00"), "only T--00 will do"),
        ):
            assert f"1 of 2 held, {rule}, nobody" in cli("acquire", "T", *args, "-w", "0").err

    def test_the_end_of_its_guard_ends_the_wait(self, cli: Cli) -> None:
        cli.ok("acquire", "-t", "T", "-c", "2")
        guard = cli.spawn(["sleep", "1000"])
        waiter = waiting(cli, "acquire", "-t", "T", "-q", "--guard-pid", str(guard.pid))
        guard.kill()
        finished = waiter.finish()
        assert (finished.code, finished.out) == (NO_LEASE, "")
        assert str(guard.pid) in finished.err
        assert cli.waiting() == []

    def test_the_end_of_whoever_reads_the_answer_ends_the_wait(self, cli: Cli) -> None:
        cli.ok("acquire", "-t", "T", "-c", "2")
        waiter = waiting(cli, "acquire", "-t", "T", "-q")
        assert waiter.process.stdout is not None
        waiter.process.stdout.close()
        assert end_of(waiter.process) == 1
        assert cli.waiting() == []

    @pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    def test_a_signal_ends_the_wait_and_the_process(self, cli: Cli, signum: int) -> None:
        cli.ok("acquire", "-t", "T", "-c", "2")
        waiter = waiting(cli, "acquire", "-t", "T", "-q")
        waiter.signal(signum)
        finished = waiter.finish()
        assert (finished.code, finished.out) == (-signum, "")
        assert cli.waiting() == []
        assert len(os.listdir(cli.state_dir / "handles")) == 1

    def test_a_signal_that_was_ignored_stays_ignored(self, cli: Cli) -> None:
        first = cli("acquire", "-t", "T", "-c", "2").handle
        argv = ["bash", "-c", 'trap "" HUP; exec "$@"', "-", *cli.command("acquire", "-t", "T")]
        waiter = cli.spawn(argv)
        eventually(cli.waiting)
        waiter.signal(signal.SIGHUP)
        cli.ok("release", "--handle", first)
        assert waiter.finish().code == 0


class TestJitter:
    def test_it_comes_before_the_queue_and_is_said(self, cli: Cli) -> None:
        started = cli.start("acquire", "-t", "T", "--jitter", "3660d")
        assert started.process.stderr is not None
        said = r"leasectl: asks for a lease in \d+\w+ \(--jitter 3660d\)\n"
        assert re.fullmatch(said, started.process.stderr.readline())
        eventually(lambda: is_asleep(started.pid))
        assert (cli.waiting(), cli.held()) == ([], {})

    def test_a_signal_ends_it(self, cli: Cli) -> None:
        started = cli.start("acquire", "-t", "T", "--jitter", "3660d")
        eventually(lambda: is_asleep(started.pid))
        started.signal(signal.SIGTERM)
        finished = started.finish()
        assert (finished.code, finished.out) == (-signal.SIGTERM, "")
        assert cli.held() == {}

    def test_the_handle_of_a_reacquire_is_held_meanwhile(self, cli: Cli) -> None:
        handle = cli("acquire", "-t", "T").handle
        started = cli.start("reacquire", "--handle", handle, "--jitter", "3660d")
        eventually(lambda: is_asleep(started.pid))
        assert list(cli.held()) == ["T--00"]
        started.signal(signal.SIGTERM)
        assert started.finish().code == -signal.SIGTERM
        assert list(cli.held()) == ["T--00"]


class TestTheDryRun:
    def test_needs_no_pool_and_leases_nothing(self, cli: Cli) -> None:
        finished = cli("acquire", "-t", "no-such-type", "-c", "9", LEASECTL_BACKEND="none:")
        assert "dry run" in finished.err
        handle = finished.handle
        assert cli.ok("cat", "--handle", handle) == ""
        assert json.loads(cli.ok("cat", "--handle", handle, "--format", "json"))["state"] == "held"
        assert cli.ok("reacquire", "--handle", handle) == f"{handle}\n"
        assert cli.ok("release", "--handle", handle) == ""
        assert cli.held() == {}

    def test_prints_nothing_where_names_are_asked_for(self, cli: Cli) -> None:
        args = ("acquire", "-t", "T", "--backend", "none:", "--output")
        assert cli.ok(*args, "names") == ""
        assert "LEASECTL_NAMES=\n" in cli.ok(*args, "env")
        assert cli.ok(*args, "csv") == "\n"


def is_asleep(pid: int) -> bool:
    """Tell whether a process waits in poll(2), which leasectl does in one place only."""
    try:
        return Path(f"/proc/{pid}/syscall").read_text().split()[0] in POLL
    except PermissionError:  # nothing else sleeps for long
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"
    except (OSError, IndexError):
        return False


# The numbers of poll(2) and ppoll(2) on x86-64 and on aarch64.
POLL = {"x86_64": ("7", "271"), "aarch64": ("73",)}.get(os.uname().machine, ())
