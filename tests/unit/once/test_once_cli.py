"""``leasectl once`` as a user meets it, on the embedded pool: real processes."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial

import pytest

from tests.kit.support import Cli, Started
from tests.kit.waits import eventually

# Says that it has begun, and waits until it may end.
WAITS = "echo $$ >>began; until [ -e may ]; do sleep 0.02; done; echo $$ >>ended; {}"

UNTIL_GO = "until [ -e go ]; do sleep 0.02; done"

# Makes the pool of the work k, and waits for it only once others have come.
SLOW_TO_QUEUE = """
import os, time
from leasectl.cli.app import main
from leasectl.once.queue import PoolOnDemand

def make(pool, make=PoolOnDemand.make):
    made = make(pool)
    open("made", "w").close()
    while not os.path.exists("queue"):
        time.sleep(0.02)
    return made

PoolOnDemand.make = make
main()
"""

# Does the work k; its store doesn't answer once the file `away` is there, the first time that it is
# asked, or as often as it is.
AWAY = """
import os
from leasectl.cli.app import main
from leasectl.errors import BackendUnreachable
from leasectl.once import results, under_lease

def answering(step):
    def ask(*args, **options):
        if os.path.exists("away"):
            if not os.environ.get("STAYS_AWAY"):
                os.unlink("away")
            with open("asked", "a") as file:
                file.write("once ")
            raise BackendUnreachable("nobody there")
        return step(*args, **options)
    return ask

results.Results.kept = answering(results.Results.kept)
under_lease.UnderLease._tickets = answering(under_lease.UnderLease._tickets)
under_lease.UnderLease._change = answering(under_lease.UnderLease._change)
main()
"""


# Waits for the work k; the store doesn't answer when it gives the lease back.
SILENT = """
from leasectl.cli.app import main
from leasectl.errors import BackendUnreachable
from leasectl.once import under_lease

def unanswered(*args, **options):
    raise BackendUnreachable("nobody there")

under_lease.UnderLease._change = unanswered
main()
"""


def doing(cli: Cli, then: str = "echo result", *options: str, key: str = "k") -> Started:
    """Who does the work, and goes on when the file `may` is there."""
    before = count(cli, "began")
    started = cli.start("once", key, *options, "--", "sh", "-c", WAITS.format(then))
    eventually(lambda: count(cli, "began") > before, what="begun")
    return started


def waiting(cli: Cli, number: int, *options: str, command: Sequence[str] = ()) -> list[Started]:
    """So many who wait for it, in order."""
    argv = command or ("sh", "-c", WAITS.format("echo another"))
    found = []
    before = len(cli.waiting())
    for _ in range(number):
        found.append(cli.start("once", "k", *options, "--", *argv))
        eventually(partial(waits, cli, before + len(found)), what="waits")
    return found


def waits(cli: Cli, number: int) -> bool:
    return len(cli.waiting()) >= number


def follows(cli: Cli) -> bool:
    """Whether somebody waits for the result of the next run, its own having failed."""
    found = cli.query("SELECT labels FROM handle WHERE state = 'acquiring'")
    return any("leasectl.follower" in str(labels) for (labels,) in found)


def has_begun(cli: Cli, times: int) -> bool:
    return count(cli, "began") == times


def count(cli: Cli, name: str) -> int:
    file = cli.cwd / name
    return len(file.read_text().split()) if file.exists() else 0


def let_end(cli: Cli) -> None:
    (cli.cwd / "may").touch()


def nothing_left(cli: Cli) -> bool:
    """Whether nothing is there but results."""
    pools = cli.query("SELECT type FROM pool")
    rounds = cli.query("SELECT key FROM value WHERE key LIKE 'once/round/%'")
    handles = cli.query("SELECT id FROM handle WHERE state <> 'released'")
    made = cli.query("SELECT type FROM made_pool")
    return pools == rounds == handles == made == []


class TestResult:
    def test_says_whose_it_is_and_how_old(self, cli: Cli) -> None:
        cli.ok("once", "k", "--", "true", JOB_NAME="job", BUILD_ID="7")
        finished = cli("once", "k", "--", "false")
        assert finished.code == 0
        assert "work k was done 0s ago by job/7/" in finished.err
        assert cli("once", "k", "-q", "--", "false").err == ""

    def test_that_is_too_large_is_shared_and_not_tried_again(self, cli: Cli) -> None:
        first = doing(cli, "head -c 1048577 /dev/zero")
        (other,) = waiting(cli, 1)
        let_end(cli)
        for each in (first, other):
            finished = each.finish()
            assert (finished.code, finished.out) == (65, "")
        assert count(cli, "began") == 1

    def test_of_another_input_is_other_work(self, cli: Cli) -> None:
        (cli.cwd / "lock").write_text("b")
        assert cli.ok("once", "k", "--input", "a", "--", "echo", "1") == "1\n"
        assert cli.ok("once", "k", "--", "echo", "2") == "2\n"
        assert cli.ok("once", "k", "--input-file", "lock", "--", "echo", "3") == "3\n"
        assert cli.ok("once", "k", "--input", "b", "--", "false") == "3\n"

    def test_that_is_no_good_any_more_is_got_again(self, cli: Cli) -> None:
        (cli.cwd / "image").touch()
        verified = ("once", "k", "--verify", "test -e image", "--")
        assert cli.ok(*verified, "echo", "1") == "1\n"
        assert cli.ok(*verified, "echo", "2") == "1\n"
        (cli.cwd / "image").unlink()
        assert cli.ok(*verified, "echo", "3") == "3\n"
        assert cli.ok("once", "k", "--", "echo", "4") == "3\n"

    def test_may_be_left_in_a_file(self, cli: Cli) -> None:
        script = "echo said; printf left >out"
        finished = cli("once", "k", "--result-file", "out", "--", "sh", "-c", script)
        assert (finished.out, finished.err) == ("left", "said\n")

    def test_is_never_what_an_earlier_command_left_in_the_file(self, cli: Cli) -> None:
        (cli.cwd / "out").write_text("old")
        finished = cli("once", "k", "--result-file", "out", "--", "true")
        assert (finished.code, finished.out, finished.err.count("\n")) == (66, "", 1)
        (cli.cwd / "out").write_text("old")
        appends = ("--result-file", "out", "--", "sh", "-c", "printf new >>out")
        assert cli.ok("once", "k", *appends) == "new"

    def test_is_not_begun_where_what_an_earlier_command_left_stays(self, cli: Cli) -> None:
        file = ("--result-file", "/proc/version")  # which not even root can remove
        finished = cli("once", "k", *file, "--", "touch", "ran")
        assert (finished.code, finished.out, finished.err.count("\n")) == (73, "", 1)
        assert "can't be removed" in finished.err
        assert not (cli.cwd / "ran").exists()

    @pytest.mark.parametrize("target", ["target", "nowhere", "/proc/self/fd/1"])
    def test_is_not_begun_where_a_link_is_to_be_its_file(self, cli: Cli, target: str) -> None:
        (cli.cwd / "target").write_text("old")
        (cli.cwd / "out").symlink_to(target)
        finished = cli("once", "k", "--result-file", "out", "--", "touch", "ran")
        assert (finished.code, finished.out, finished.err.count("\n")) == (73, "", 1)
        assert "out is a symbolic link, so the command wasn't run: name the file" in finished.err
        assert not (cli.cwd / "ran").exists()
        assert os.readlink(cli.cwd / "out") == target
        assert (cli.cwd / "target").read_text() == "old"

    @pytest.mark.parametrize("script", ["rm -f out", "mkdir out", "mkfifo out"])
    def test_that_is_in_no_file_is_a_failure(self, cli: Cli, script: str) -> None:
        finished = cli("once", "k", "--result-file", "out", "--", "sh", "-c", script)
        assert (finished.code, finished.out) == (66, "")
        assert "the result file out" in finished.err

    def test_is_empty_input_for_the_command(self, cli: Cli) -> None:
        argv = [*cli.command("once", "k", "--", "cat")]
        run = subprocess.run(argv, input=b"x", capture_output=True, env=cli.env, cwd=cli.cwd)
        assert run.stdout == b""

    def test_leaves_all_of_stderr_written_before_the_end(self, cli: Cli) -> None:
        argv = [*cli.command("once", "k", "--"), "sh", "-c", "seq 30000 >&2"]
        with open(cli.cwd / "log", "w+b") as log:
            subprocess.run(argv, stderr=log, env=cli.env, cwd=cli.cwd, check=True)
            assert (cli.cwd / "log").read_text().splitlines() == [str(n) for n in range(1, 30001)]

    def test_does_not_wait_for_a_stderr_that_nobody_reads(self, cli: Cli) -> None:
        script = "(head -c 1000000 /dev/zero >&2; touch all) & echo 1"
        argv = [*cli.command("once", "k", "--"), "sh", "-c", script]
        with subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.env, cwd=cli.cwd
        ) as started:
            assert started.stdout is not None and started.stderr is not None
            assert started.stdout.read() == b"1\n"
            assert started.wait() == 0
            assert not (cli.cwd / "all").exists()
            assert len(started.stderr.read()) == 1000000


class TestFailure:
    def test_is_tried_again_by_the_next_as_often_as_agreed(self, cli: Cli) -> None:
        first = doing(cli, "exit 7", "--attempts", "2")
        others = waiting(cli, 2, command=("sh", "-c", "echo x >>ran; exit 8"))
        let_end(cli)
        assert [each.finish().code for each in (first, *others)] == [7, 8, 8]
        assert count(cli, "ran") == 1
        assert nothing_left(cli)

    def test_of_a_runner_is_made_good_by_one_who_came_later(self, cli: Cli) -> None:
        first = doing(cli, "exit 7")
        (failing,) = waiting(cli, 1, command=("sh", "-c", f"{UNTIL_GO}; exit 8"))
        let_end(cli)
        eventually(lambda: follows(cli) and len(cli.waiting()) == 1, what="the other runs")
        (late,) = waiting(cli, 1, command=("echo", "late"))
        (cli.cwd / "go").touch()
        assert [each.finish().out for each in (first, failing, late)] == ["late\n"] * 3
        assert nothing_left(cli)

    def test_is_the_runners_own_if_nobody_succeeds_within_its_wait(self, cli: Cli) -> None:
        first = doing(cli, "exit 7", "-w", "1s")
        (other,) = waiting(cli, 1, command=("sh", "-c", UNTIL_GO))
        let_end(cli)
        assert first.finish().code == 7
        (cli.cwd / "go").touch()
        assert other.finish().code == 0

    def test_of_a_runner_that_is_signalled_meanwhile_ends_it_by_the_signal(self, cli: Cli) -> None:
        first = doing(cli, "exit 7")
        (other,) = waiting(cli, 1, command=("sh", "-c", UNTIL_GO))
        let_end(cli)
        eventually(partial(follows, cli))
        first.signal(signal.SIGTERM)
        assert first.finish().code == -signal.SIGTERM
        (cli.cwd / "go").touch()
        assert other.finish().code == 0
        assert nothing_left(cli)

    def test_shows_the_last_lines_of_stderr_to_who_shares_it(self, cli: Cli) -> None:
        script = "for n in 1 2 3 4 5 6 7 8 9 10 11; do echo line $n >&2; done; exit 7"
        first = doing(cli, script, "--on-failure", "share")
        (other,) = waiting(cli, 1, "--on-failure", "share")
        let_end(cli)
        own, shared = first.finish(), other.finish()
        assert own.err == "".join(f"line {n}\n" for n in range(1, 12))
        assert [each for each in shared.err.splitlines() if "| " in each] == [
            f"leasectl: | line {n}" for n in range(2, 12)
        ]

    def test_is_told_by_whoever_shares_it_though_its_store_is_away(self, cli: Cli) -> None:
        first = doing(cli, "exit 7", "--on-failure", "share")
        other = cli.spawn([sys.executable, "-c", SILENT, "once", "k", "--", "true"])
        eventually(partial(waits, cli, 1))
        let_end(cli)
        assert (first.finish().code, other.finish().code) == (7, 7)
        eventually(partial(nothing_left, cli))

    def test_is_what_takes_too_long(self, cli: Cli) -> None:
        finished = cli("once", "k", "--run-limit", "0.1", "--", "sleep", "100")
        assert finished.code == 124
        assert "longer than --run-limit" in finished.err

    def test_is_no_command_that_is_not_there(self, cli: Cli) -> None:
        finished = cli("once", "k", "--", "nowhere")
        assert (finished.code, finished.out) == (127, "")

    def test_leaves_nothing_running_for_the_next(self, cli: Cli) -> None:
        assert cli("once", "k", "--", "sh", "-c", "sleep 1000 & echo $! >pid; exit 1").code == 1
        with pytest.raises(ProcessLookupError):
            os.kill(int((cli.cwd / "pid").read_text()), 0)


class TestOutage:
    def test_that_is_short_costs_no_result(self, cli: Cli) -> None:
        script = "touch away; echo ran >>ran; echo result"
        argv = ["once", "k", "--ttl", "5s", "--", "sh", "-c", script]
        finished = cli.spawn([sys.executable, "-c", AWAY, *argv]).finish()
        assert (finished.code, finished.out) == (0, "result\n")
        assert cli("once", "k", "--", "false").out == "result\n"

    def test_is_waited_out_but_once_by_who_is_to_end(self, cli: Cli) -> None:
        argv = ["once", "k", "--ttl", "5s", "--", "sh", "-c", "touch away begun; exec sleep 60"]
        runner = cli.spawn([sys.executable, "-c", AWAY, *argv], STAYS_AWAY="1")
        eventually((cli.cwd / "begun").exists)
        runner.signal(signal.SIGTERM)
        finished = runner.finish()
        assert finished.code == -signal.SIGTERM
        assert "the keeper gives the lease back" in finished.err
        assert count(cli, "asked") == 1
        eventually(lambda: not cli.held())


class TestDeath:
    def test_ends_the_command_and_has_the_next_take_over(self, cli: Cli) -> None:
        first = doing(cli)
        (other,) = waiting(cli, 1)
        first.kill()
        eventually(lambda: count(cli, "began") == 2)
        killed_pid, _ = (cli.cwd / "began").read_text().split()
        with pytest.raises(ProcessLookupError):
            os.kill(int(killed_pid), 0)
        let_end(cli)
        assert other.finish().out == "another\n"
        assert count(cli, "ended") == 1

    def test_before_it_has_asked_for_anything_leaves_nothing(self, cli: Cli) -> None:
        argv = ["once", "k", "--", "true"]
        maker = cli.spawn([sys.executable, "-c", SLOW_TO_QUEUE, *argv])
        eventually((cli.cwd / "made").exists)
        (row,) = cli.query("SELECT type FROM made_pool")
        assert str(row[0]).startswith("once.")
        maker.kill()
        eventually(partial(nothing_left, cli))

    def test_by_a_signal_is_passed_on_and_is_no_failure(self, cli: Cli) -> None:
        first = doing(cli, "exit 1", "--attempts", "1")
        (other,) = waiting(cli, 1, "--attempts", "1")
        first.signal(signal.SIGTERM)
        assert first.finish().code == -signal.SIGTERM
        let_end(cli)
        assert other.finish().out == "another\n"

    def test_by_a_signal_has_no_result_whatever_the_command_makes_of_it(self, cli: Cli) -> None:
        script = "trap 'echo partial; exit 0' TERM; touch begun; sleep 60 & wait"
        first = cli.start("once", "k", "--", "sh", "-c", script)
        eventually((cli.cwd / "begun").exists)
        (other,) = waiting(cli, 1, command=("echo", "another"))
        first.signal(signal.SIGTERM)
        finished = first.finish()
        assert (finished.code, finished.out) == (-signal.SIGTERM, "")
        assert "its result isn't kept" in finished.err
        assert other.finish().out == "another\n"


class TestWait:
    @pytest.mark.parametrize("around", [("k",), ("k", "a", "b")])
    def test_for_itself_is_refused(self, cli: Cli, around: tuple[str, ...]) -> None:
        words = cli.command("once", "k", "--", "true")
        for key in reversed(around):
            words = cli.command("once", key, "--", "sh", "-c", shlex.join(words))
        finished = cli.spawn(words).finish()
        assert finished.code == 64
        assert "would wait for itself" in finished.err
        assert nothing_left(cli)

    def test_for_what_was_under_way_around_it_is_none(self, cli: Cli) -> None:
        inner = shlex.join(cli.command("once", "k", "--", "echo", "2"))
        later = f"until [ -e may ]; do sleep 0.02; done; {inner} >later 2>&1; touch done"
        script = f"({later}) 2>&- & exit 0"
        cli.ok("once", "k", "--keep", "1s", "--", "sh", "-c", script)
        cli.ok("once", "--forget", "k")
        let_end(cli)
        eventually((cli.cwd / "done").exists)
        assert (cli.cwd / "later").read_text() == "2\n"

    def test_is_shown_as_work_and_not_as_a_pool(self, cli: Cli) -> None:
        first = doing(cli, key="k")
        waiting(cli, 1)
        shown = cli.ok("status")
        assert shown.startswith("work k\n")
        assert "once." not in shown
        found = json.loads(cli.ok("status", "--json"))
        assert found["pools"] == []
        assert [(each["work"], each["waiting"]) for each in found["works"]] == [("k", 1)]
        assert cli.ok("pool", "list") == ""
        (pool_type,) = (str(each) for (each,) in cli.query("SELECT type FROM pool"))
        for refused in (
            ("acquire", "-t", pool_type),
            ("pool", "create", pool_type, "--count", "1"),
            ("pool", "create", "T", "--names", pool_type),
            ("pool", "delete", pool_type, "--force"),
        ):
            assert cli(*refused).code == 64
        let_end(cli)
        assert first.finish().code == 0

    def test_is_ended_by_a_release_but_not_who_does_the_work(self, cli: Cli) -> None:
        first = doing(cli)
        (other,) = waiting(cli, 1)
        (runner,) = cli.held().values()
        assert cli("release", "--handle", runner).code == 77
        assert cli("reacquire", "--handle", runner).code == 77
        cli.ok("release", "--all")
        finished = other.finish()
        assert (finished.code, finished.out) == (75, "")
        assert finished.err.endswith("leasectl: work k: the request was released while it waited\n")
        let_end(cli)
        assert first.finish().out == "result\n"

    def test_has_the_lease_by_force_only_when_the_command_has_ended(self, cli: Cli) -> None:
        first = doing(cli, "exit 3")
        (other,) = waiting(cli, 1)
        (name,) = cli.held()
        cli.ok("release", "--names", name, "--force")
        finished = first.finish()
        assert finished.code == 79
        assert "work k" in finished.err
        let_end(cli)
        assert other.finish().out == "another\n"


class TestKept:
    def test_is_listed_shown_and_forgotten(self, cli: Cli) -> None:
        cli.ok("once", "k", "--input", "1", "--", "echo", "one")
        assert cli.ok("once", "--list").split()[:4] == ["ID", "WORK", "INPUTS", "DONE"]
        (found,) = json.loads(cli.ok("once", "--list", "--json"))
        assert (found["key"], found["bytes"]) == ("k", 4)
        assert cli.ok("once", "--show", "k", "--input", "1") == "one\n"
        missing = cli("once", "--show", "k")
        assert missing.code == 66
        assert "with other inputs, by id: " in missing.err
        assert cli("once", "--forget", "k").code == 66
        cli.ok("once", "--forget", "k", "--input", "1")
        assert json.loads(cli.ok("once", "--list", "--json")) == []
        assert cli.query("SELECT * FROM value") == cli.query("SELECT * FROM pool") == []

    def test_is_told_by_events(self, cli: Cli) -> None:
        cli.ok("once", "k", "--", "true")
        cli("once", "f", "--", "sh", "-c", "exit 3")
        cli.ok("once", "--forget", "k")
        told = [line.split(None, 4)[1:4] for line in cli.ok("events").splitlines()]
        assert told == [
            ["work", "begun", "k"],
            ["work", "done", "k"],
            ["work", "begun", "f"],
            ["work", "failed", "f"],
            ["work", "forgotten", "k"],
        ]
        assert "exit code 3" in cli.ok("events", "--name", "f")

    def test_leaves_what_doctor_can_clear_away(self, cli: Cli) -> None:
        cli.ok("once", "k", "--", "true")
        with cli.service() as service:
            service.pools.create_pool(f"once.{'0' * 64}", [f"once.{'0' * 64}"])
        assert "that no process runs" in cli("doctor").out
        cli("doctor", "--fix")
        assert cli.query("SELECT type FROM pool") == []


class TestBadInput:
    @pytest.mark.parametrize(
        ("words", "code"),
        [
            ((), 64),
            (("k",), 64),
            (("k", "l", "--", "true"), 64),
            (("k\n", "--", "true"), 64),
            (("-k", "--", "true"), 64),
            (("", "--", "true"), 64),
            (("k" * 201, "--", "true"), 64),
            (("k", "--input-file", "nowhere", "--", "true"), 66),
            (("k", "--input-file", ".", "--", "true"), 64),
            (("k", "--input-file", "", "--", "true"), 64),
            (("k", "--keep", "0", "--", "true"), 64),
            (("k", "--attempts", "0", "--", "true"), 64),
            (("k", "--run-limit", "0", "--", "true"), 64),
            (("k", "--result-file", "", "--", "true"), 64),
            (("k", "--on-failure", "stop", "--", "true"), 64),
            (("k", "--json", "--", "true"), 64),
            (("k", "--list"), 64),
            (("--show", "k", "--forget", "k"), 64),
            (("--list", "--input", "x"), 64),
            (("--list", "--keep", "24h"), 64),
            (("--list", "--", "true"), 64),
            (("--show", "k", "--attempts", "3"), 64),
            (("--forget", "k", "-w", "1"), 64),
            (("--forget", "k", "--json"), 64),
            (("--backend", "none:", "k", "--", "true"), 64),
            (("--backend", "http://127.0.0.1:1", "k", "--", "true"), 64),
        ],
    )
    def test_is_refused_in_a_line_and_changes_nothing(
        self, cli: Cli, words: tuple[str, ...], code: int
    ) -> None:
        cli.pool("T")
        before = cli.snapshot()
        finished = cli("once", *words)
        assert (finished.code, finished.out) == (code, "")
        assert finished.err.count("\n") == 1
        assert cli.snapshot() == before


def test_its_wait_bounds_what_is_asked_before_there_is_a_queue(cli: Cli) -> None:
    finished = cli("once", "k", "--backend", "etcd://127.0.0.1:1", "-w", "2", "--", "true")
    assert finished.code == 69
    assert "no answer from etcd within 3s" in finished.err  # not 10, as it is without -w


PULLSPECS = (
    "registry.ci.openshift.org/ocp/release@sha256:" + "ab" * 32,
    "registry.ci.openshift.org/ocp/release@sha256:" + "ab" * 15 + "ba" + "ab" * 16,
)


class TestKey:
    @pytest.mark.parametrize(
        "key",
        [
            PULLSPECS[0],
            "../../etc/x",
            "100%41",
            "$(touch hit) `touch hit` 'x' \"y\" ;|&",
            "\U0001f600" * 200,
        ],
    )
    def test_may_be_any_printable_text(self, cli: Cli, key: str) -> None:
        assert cli.ok("once", key, "--", "echo", "1") == "1\n"
        assert cli("once", key, "--", "false").out == "1\n"
        assert cli.ok("once", "--show", key, "-q") == "1\n"
        (found,) = json.loads(cli.ok("once", "--list", "--json"))
        assert (found["key"], found["inputs"]) == (key, "")
        named = [
            json.loads(each) for each in cli.ok("events", "--name", key, "--json").splitlines()
        ]
        assert [(each["kind"], each["names"]) for each in named] == [
            ("work begun", [key]),
            ("work done", [key]),
        ]
        assert key in cli.ok("events")
        cli.ok("once", "--forget", key)
        assert not list(cli.cwd.rglob("hit"))
        assert nothing_left(cli)


class TestInputs:
    def test_tell_two_pullspecs_apart_wherever_work_is_shown(self, cli: Cli) -> None:
        started = []
        for spec in PULLSPECS:
            words = ("once", "import", "--input", spec, "--", "sh", "-c", WAITS.format("echo x"))
            started.append(cli.start(*words))
            eventually(partial(has_begun, cli, len(started)), what="begun")
        works = json.loads(cli.ok("status", "--json"))["works"]
        shown = {each["inputs"] for each in works}
        assert len(shown) == 2
        status, running = (
            cli.ok("status"),
            cli("once", "--forget", "import", "--input", PULLSPECS[0]),
        )
        assert all(f"work import ({each})" in status for each in shown)
        assert any(f"work import ({each})" in running.err for each in shown)
        let_end(cli)
        assert [each.finish().code for each in started] == [0, 0]
        listed = json.loads(cli.ok("once", "--list", "--json"))
        assert {each["inputs"] for each in listed} == shown
        events, table = cli.ok("events"), cli.ok("once", "--list")
        assert all(each in events and each in table for each in shown)

    def test_of_files_are_shown_by_their_names_alone(self, cli: Cli) -> None:
        (cli.cwd / "pull.json").write_text("secret")
        cli.ok("once", "k", "--input-file", "pull.json", "--", "true")
        (found,) = json.loads(cli.ok("once", "--list", "--json"))
        assert found["inputs"] == f"pull.json [{found['id']}]"
        assert "secret" not in cli.ok("events")


class TestId:
    def test_names_a_result_as_the_list_shows_it(self, cli: Cli) -> None:
        for spec in PULLSPECS:
            cli.ok("once", "import", "--input", spec, "--", "echo", spec)
        ids = [line.split()[0] for line in cli.ok("once", "--list").splitlines()[1:]]
        missing = cli("once", "--forget", "import")
        assert missing.code == 66
        assert all(each in missing.err for each in ids)
        shown = {cli.ok("once", "--show", each, "-q").strip() for each in ids}
        assert shown == set(PULLSPECS)
        cli.ok("once", "--forget", ids[0])
        (left,) = json.loads(cli.ok("once", "--list", "--json"))
        assert left["id"] == ids[1]
        cli.ok("once", "--forget", left["digest"])
        assert nothing_left(cli)
