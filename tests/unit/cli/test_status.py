"""``leasectl status``, as people and programs read it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import sqlite3
import struct
import subprocess
import termios
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from leasectl.pools.overview import NOTHING_SAID
from leasectl.text.wording import NO_POOLS
from tests.kit.support import Cli, Started, kill
from tests.kit.waits import end_of, eventually

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")

HOST = os.uname().nodename


def seconds_of(time: str) -> float:
    return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()


def status(cli: Cli, *args: str) -> Any:
    return json.loads(cli.ok("status", "--json", *args))


def wait_for(cli: Cli, number: int) -> None:
    eventually(lambda: len(cli.waiting()) == number)


class TestJson:
    def test_it_is_exactly_what_the_contract_says(self, cli: Cli) -> None:
        cli.pool("T", "a", "b")
        guard = cli.spawn(["sleep", "1000"])
        owner = "nightly/17"
        job = {"JOB_NAME": "nightly", "BUILD_ID": "17"}
        timing = ("--ttl", "30s", "--release-after", "20m", "--label", "team=x=y")
        handle = cli.ok("acquire", "-t", "T", "--guard-pid", str(guard.pid), *timing, **job)
        waiter = cli.start("acquire", "--name", "a", "-t", "T", "--label", "why=test")
        wait_for(cli, 1)
        found = status(cli)
        (pool,) = found["pools"]
        held, free = pool["resources"]
        (entry,) = pool["queue"]
        nothing_said = {
            "properties": {},
            "membership": NOTHING_SAID._asdict(),
            "in_use": False,
        }
        assert list(found) == ["backend", "at", "pools", "works", "circular_waits"]
        assert TIME.fullmatch(found["at"])
        assert found["backend"] == "local:"
        assert [*pool] == [
            *("type", "capacity", "free", "held", "waiting", "unavailable"),
            *("pace_seconds", "burst", "aging_seconds", "next_grant_in_seconds"),
            *("default_grace_seconds", "resources", "queue"),
        ]
        assert [*pool.values()][5:10] == [0, 0, 1, 0, 0]
        assert (pool["type"], pool["capacity"], pool["free"], pool["held"], pool["waiting"]) == (
            "T",
            2,
            1,
            1,
            1,
        )
        assert [*held] == [
            *("name", "state", "holder_identity", "acquire_time", "renew_time"),
            *("lease_duration_seconds", "lease_transitions", "fence", "grant", "ticket"),
            *("guard_pid", "host", "expires_in_seconds"),
            *("handle", "job", "build", "owner", "pid", "guard", "release_time", "renewed_by"),
            *("labels", "ended", "release_at"),
            *("properties", "membership", "mark", "in_use"),
        ]
        assert held["release_at"] == held["release_time"]
        assert TIME.fullmatch(held.pop("acquire_time"))
        assert TIME.fullmatch(held.pop("renew_time"))
        handle_id = os.path.basename(handle.strip())
        assert held.pop("holder_identity") == f"{owner}/{HOST}/{handle_id}"
        assert 0 < held.pop("expires_in_seconds") <= 30
        del held["release_time"]
        released_in = seconds_of(held.pop("release_at")) - seconds_of(found["at"])
        assert 1190 < released_in <= 1200
        assert held == {
            "name": "a",
            "state": "held",
            "lease_duration_seconds": 30,
            "lease_transitions": 0,
            "fence": 1,
            "grant": 1,
            "ticket": 1,
            "guard_pid": guard.pid,
            "host": HOST,
            "handle": handle_id,
            "job": "nightly",
            "build": "17",
            "owner": "nightly/17",
            "pid": guard.pid,
            "guard": "here",
            "renewed_by": "keeper",
            "labels": {"team": "x=y"},
            "ended": None,
            "mark": None,
            **nothing_said,
        }
        assert free.pop("name") == "b"
        assert free.pop("state") == "free"
        assert {key: free.pop(key) for key in nothing_said} == nothing_said
        assert set(free.values()) == {None}
        assert [*entry] == [
            *("ticket", "holder_identity", "count", "since", "position", "host"),
            *("handle", "job", "build", "owner", "pid", "name", "labels", "suspended"),
            *("priority", "effective_priority", "where"),
        ]
        assert TIME.fullmatch(entry.pop("since"))
        handle_id, user = entry["handle"], entry["owner"]
        assert re.fullmatch(r"T-\w{6}", handle_id)
        assert user.endswith(f"@{HOST}")
        assert entry == {
            "ticket": 2,
            "holder_identity": f"{user}/{HOST}/{handle_id}",
            "count": 1,
            "position": 1,
            "priority": 0,
            "effective_priority": 0,
            "where": [],
            "host": HOST,
            "handle": handle_id,
            "job": None,
            "build": None,
            "owner": user,
            "pid": waiter.process.pid,
            "name": "a",
            "labels": {"why": "test"},
            "suspended": False,
        }

    def test_a_lease_of_run_has_its_pid_and_says_that_it_renews(self, cli: Cli) -> None:
        cli.pool("T", "a")
        run = cli.start("run", "-t", "T", "--ttl", "30s", "--", "sleep", "1000")
        eventually(lambda: status(cli)["pools"][0]["resources"][0]["guard_pid"])
        held = status(cli)["pools"][0]["resources"][0]
        assert (held["pid"], held["renewed_by"]) == (run.process.pid, "run")
        assert held["guard_pid"] != held["pid"]

    def test_it_shows_no_holder_whose_guard_is_dead(self, cli: Cli) -> None:
        cli.pool("T", "a")
        guard = cli.spawn(["sleep", "1000"])
        cli.ok("acquire", "-t", "T", "--guard-pid", str(guard.pid))
        for keeper in cli.keepers():
            kill(keeper)
        guard.kill()
        assert status(cli)["pools"][0]["held"] == 0

    def test_it_shows_no_waiter_that_is_dead(self, cli: Cli) -> None:
        cli.pool("T", "a")
        cli.ok("acquire", "-t", "T")
        waiter = cli.start("acquire", "-t", "T")
        wait_for(cli, 1)
        waiter.kill()
        assert status(cli)["pools"][0]["queue"] == []


class TestTable:
    def test_it_shows_numbers_holders_and_the_queue(self, cli: Cli) -> None:
        cli.pool("T", "a", "b")
        cli.pool("U", "c")
        cli.ok("acquire", "-t", "T", "--label", "team=x", "--label", "why=test")
        cli.ok("acquire", "-t", "T", "--release-after", "20m", "--ttl", "1h")
        waiter = cli.start("acquire", "-t", "T", "-c", "2")
        wait_for(cli, 1)
        lines = cli.ok("status").splitlines()
        assert lines[:5] == [
            "POOL  CAPACITY  FREE  HELD  WAITING",
            "T            2     0     2        1",
            "U            1     1     0        0",
            "",
            "T",
        ]
        assert re.split(r"  +", lines[5].strip()) == [
            *("RESOURCE", "JOB", "BUILD", "HELD FOR", "ENDS", "HANDLE", "HOST", "GUARD", "LABELS")
        ]
        job = rf"\S+@{HOST} +-"
        who = rf"T-\w{{6}}  {HOST} +unguarded"
        assert re.fullmatch(rf"  a +{job} +\d+s  - +{who}  team=x why=test", lines[6])
        ends = r"in (19m\d*s?|20m) \(release\), in (59m\d*s?|1h) unless renewed"
        assert re.fullmatch(rf"  b +{job} +\d+s  ({ends})  {who}", lines[7])
        assert lines[8] == ""
        assert re.split(r"  +", lines[9].strip()) == [
            *("POSITION", "JOB", "BUILD", "WAITED", "ASKS FOR", "HANDLE", "HOST", "PID", "LABELS")
        ]
        who = rf"T-\w{{6}}  {HOST} +{waiter.process.pid}"
        assert re.fullmatch(rf" +1  {job} +\d+s  2 +{who}", lines[10])
        assert len(lines) == 11

    def test_the_type_of_one_pool_is_not_repeated_and_what_is_free_listed(self, cli: Cli) -> None:
        cli.pool("lab", "lab--00", "lab--01")
        cli.ok("acquire", "-t", "lab")
        for args in (("-t", "lab"), ("-t", "lab", "--wide")):
            out = cli.ok("status", *args, COLUMNS="80")
            assert re.findall("^lab", out, re.MULTILINE) == ["lab"]
        assert re.search(r"^  lab--01 +free$", out, re.MULTILINE)
        assert re.search(r"^  lab--00 .+ \d+s ", out, re.MULTILINE)
        assert re.search(r"^  --01 +free$", cli.ok("status", "-t", "lab", COLUMNS="50"), re.M)
        assert "--01" not in cli.ok("status", COLUMNS="80")

    def test_a_ttl_that_nobody_renews_is_shown_as_what_is_left(self, cli: Cli) -> None:
        cli.pool("T", "a")
        shared = str(cli.cwd)
        cli.ok("acquire", "-t", "T", "--ttl", "1h", "--scope", "test", SHARED_DIR=shared)
        assert re.search(r"  in (59m\d*s?|1h) unless renewed .* unguarded$", cli.ok("status"))

    def test_who_renews_is_told(self, cli: Cli) -> None:
        cli.pool("T", "a", "b", "c", "d")
        ttl = ("-t", "T", "--ttl", "1h")
        cli.ok("acquire", *ttl, "--name", "a")
        cli.ok("acquire", *ttl, "--name", "b", "--guard-pid", str(os.getpid()))
        started = cli.cwd / "started"
        script = f": >{started}; exec sleep 1000"
        run = cli.start("run", *ttl, "--name", "c", "--", "sh", "-c", script)
        eventually(started.exists)
        rows = {line.split()[0]: line for line in cli.ok("status").splitlines() if line.split()}
        assert re.search(r" in (59m\d*s?|1h) unless renewed ", rows["a"])
        assert " renewed by keeper (ttl 1h) " in rows["b"]
        assert " renewed by run (ttl 1h) " in rows["c"]
        resources = status(cli)["pools"][0]["resources"]
        assert [each["renewed_by"] for each in resources] == ["nobody", "keeper", "run", None]
        os.kill(run.process.pid, signal.SIGTERM)
        assert run.finish().code == -signal.SIGTERM

    def test_it_fits_the_width_and_spares_names(self, cli: Cli) -> None:
        cli.pool("azure--install")
        job = {
            "JOB_NAME": "pull-ci-openshift-installer-main-e2e-azure-ovn" * 3,
            "BUILD_ID": "1" * 19,
        }
        cli.ok("acquire", "-t", "azure--install", "--label", "note=" + "x" * 150, **job)
        cli.ok("acquire", "-t", "azure--install", "--release-after", "1d", "--ttl", "1h", **job)
        cli.start("acquire", "-t", "azure--install", **job)
        wait_for(cli, 1)
        for columns in (30, 60, 80, 132, 400):
            out = cli.ok("status", COLUMNS=str(columns))
            assert max(map(len, out.splitlines())) <= columns
            if columns >= 60:
                assert " --00 " in out
                assert " --01 " in out
                assert ("…" in out) == (columns < 400)
        full = cli.ok("status", "--wide", COLUMNS="30")
        assert job["JOB_NAME"] in full
        assert "azure--install--00" in full
        assert "note=" + "x" * 150 in full

    def test_a_pipe_has_any_width(self, cli: Cli) -> None:
        cli.pool("T")
        cli.pool("x" * 200)
        cli.ok("acquire", "-t", "T", JOB_NAME="j" * 200, BUILD_ID="b" * 200)
        out = cli.ok("status")
        assert "j" * 200 in out
        assert "b" * 200 in out
        assert "x" * 200 in cli.ok("pool", "list")

    def test_what_is_in_the_database_cant_control_the_terminal(self, cli: Cli) -> None:
        cli.pool("T", "a")
        cli.ok("acquire", "-t", "T")
        with contextlib.closing(sqlite3.connect(cli.state_dir / "state.db")) as database, database:
            database.execute(
                "UPDATE resource SET labels = 'k=\x1b[31m', holder_identity = 'a\x1bb'"
            )
        out = cli.ok("status")
        assert "\x1b" not in out
        assert "k=\\x1b[31m" in out

    def test_without_pools_there_is_a_hint_on_stderr(self, cli: Cli) -> None:
        finished = cli("status")
        assert (finished.code, finished.out) == (0, "")
        assert finished.err == (f"leasectl: {NO_POOLS}\n")

    @pytest.mark.parametrize("args", [(), ("--json",), ("--watch",)])
    def test_an_unknown_type_gets_a_suggestion(self, cli: Cli, args: tuple[str, ...]) -> None:
        cli.pool("azure--install")
        finished = cli("status", "-t", "azure--instal", *args)
        assert (finished.code, finished.out) == (66, "")
        assert 'did you mean "azure--install"?' in finished.err

    def test_a_reader_that_has_seen_enough_ends_it_as_it_ends_others(self, cli: Cli) -> None:
        cli.pool("T")
        script = f"{{ {' '.join(cli.command('status'))}; echo $? >&2; }} | :"
        finished = cli.spawn(["bash", "-c", script]).finish()
        assert finished.err in ("141\n", "0\n")

    def test_a_full_disk_is_a_failure(self, cli: Cli) -> None:
        cli.pool("T")
        finished = cli.spawn(
            ["bash", "-c", f"{' '.join(cli.command('status'))} >/dev/full"]
        ).finish()
        assert finished.code == 1
        assert "No space left" in finished.err


class TestRows:
    @pytest.fixture(autouse=True)
    def _two_pools(self, cli: Cli) -> Iterator[None]:
        """A holder in each, and one who waits in the second."""
        for pool in ("A", "B"):
            cli.pool(pool, f"{pool}--00")
        cli.ok("acquire", "A", JOB_NAME="nightly", BUILD_ID="7")
        cli.ok("acquire", "B", JOB_NAME="nightly", BUILD_ID="8")
        waiter = cli.start("acquire", "B", JOB_NAME="e2e", BUILD_ID="9")
        eventually(lambda: cli.query("SELECT 1 FROM ticket"))
        yield
        waiter.kill()

    def test_only_those_are_listed_that_are_asked_for(self, cli: Cli) -> None:
        for options, listed in (
            (("--held",), {"A": ["7"], "B": ["8"]}),
            (("--waiting",), {"B": ["9"]}),
            (("--held", "--waiting"), {"A": ["7"], "B": ["8", "9"]}),
            (("--holder", "nightly/7"), {"A": ["7"]}),
            (("--holder", "nightly"), {"A": ["7"], "B": ["8"]}),
            (("--holder", "e2e"), {"B": ["9"]}),
            (("--holder", "e2e", "--held"), {}),
            (("-t", "B", "--holder", "nightly"), {"B": ["8"]}),
        ):
            shown = json.loads(cli.ok("status", "--json", *options))
            found = {
                pool["type"]: [row["build"] for row in (*pool["resources"], *pool["queue"])]
                for pool in shown["pools"]
            }
            assert found == listed, options
        builds = re.findall(r"(?:nightly|e2e) +(\d)", cli.ok("status", "--held", "--waiting"))
        assert sorted(builds) == ["7", "8", "9"]
        (pool,) = json.loads(cli.ok("status", "--json", "--waiting"))["pools"]
        assert (pool["held"], pool["waiting"], pool["resources"]) == (1, 1, [])
        nobody = cli("status", "--holder", "nobody")
        assert (nobody.code, nobody.out) == (0, "")
        assert nobody.err == "leasectl: no lease or request matches\n"
        elsewhere = cli("status", "--held", "--backend", "none:")
        assert (elsewhere.code, elsewhere.out) == (64, "")
        assert "local:, etcd://, kubernetes:// and leasectl+http:// can do it" in elsewhere.err


class TestWatchOnAPipe:
    def test_it_prints_again_when_and_only_when_something_changes(self, cli: Cli) -> None:
        cli.pool("T", "a")
        watch = cli.start("status", "--watch", "--json")
        assert next_object(watch)["pools"][0]["held"] == 0
        handle = cli.ok("acquire", "-t", "T", "--ttl", "5m").strip()
        assert next_object(watch)["pools"][0]["held"] == 1
        # Long enough for a refresh; nothing has changed, so nothing may be there to be read.
        # That a lease is renewed, and that time passes until it would end, is no change.
        assert not readable(watch, 2.5)
        cli.ok("release", "--handle", handle)
        assert next_object(watch)["pools"][0]["held"] == 0

    def test_tables_are_dated(self, cli: Cli) -> None:
        cli.pool("T", "a")
        watch = cli.start("status", "--watch")
        assert TIME.fullmatch(next_line(watch))
        assert next_line(watch).startswith("POOL")

    @pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_ends_it_by_that_signal(self, cli: Cli, signum: int) -> None:
        cli.pool("T")
        watch = cli.start("status", "--watch", "--json")
        next_object(watch)
        watch.signal(signum)
        finished = watch.finish()
        assert (finished.code, finished.err) == (-signum, "")

    def test_it_ends_when_nobody_reads_it_any_more(self, cli: Cli) -> None:
        cli.pool("T")
        watch = cli.start("status", "--watch", "--json")
        next_object(watch)
        assert watch.process.stdout is not None
        watch.process.stdout.close()
        assert end_of(watch.process) == 0
        assert watch.process.stderr is not None
        assert watch.process.stderr.read() == ""

    def test_it_ends_when_its_pool_is_deleted(self, cli: Cli) -> None:
        cli.pool("T")
        watch = cli.start("status", "--watch", "--json", "-t", "T")
        next_object(watch)
        cli.ok("pool", "delete", "T")
        assert watch.finish().code == 66


class TestColour:
    """On a terminal, unless it is a dumb one or NO_COLOR asks for none (no-color.org)."""

    @pytest.mark.parametrize(
        ("command", "env", "coloured"),
        [
            (("status",), {}, True),
            (("status",), {"NO_COLOR": ""}, True),
            (("status",), {"NO_COLOR": "1"}, False),
            (("status",), {"TERM": "dumb"}, False),
            (("pool", "list"), {}, True),
            (("doctor",), {}, True),
            (("doctor",), {"NO_COLOR": "1"}, False),
        ],
    )
    def test_it_is_there_on_a_terminal(
        self, cli: Cli, command: tuple[str, ...], env: dict[str, str], coloured: bool
    ) -> None:
        cli.pool("T")
        with terminal(cli, *command, rows=24, columns=80, **env) as (process, read):
            end_of(process)
            assert ("\x1b[" in read()) == coloured


class TestWatchOnATerminal:
    def test_a_dumb_one_gets_what_a_pipe_gets(self, cli: Cli) -> None:
        cli.pool("T")
        with terminal(cli, "status", "--watch", rows=24, columns=80, TERM="dumb") as (_, read):
            eventually(lambda: "POOL" in read(), what="a table")
            assert TIME.fullmatch(read().splitlines()[0])
            assert "\x1b" not in read()

    def test_a_line_that_is_wider_takes_the_place_of_several(self, cli: Cli) -> None:
        cli.pool("T", "a", "b", "c")
        cli.ok("acquire", "-t", "T", "-c", "3", JOB_NAME="j" * 100, BUILD_ID="1")
        args = ("status", "--watch", "--wide")
        with terminal(cli, *args, rows=12, columns=80, NO_COLOR="1") as (_, read):
            eventually(lambda: "more lines" in read(), what="a screen")
            # The heading, two empty lines, two of the summary, and each row that takes three.
            assert "… 3 more lines" in read()

    def test_it_shows_a_change_and_fits_the_screen(self, cli: Cli) -> None:
        cli.pool("T", *(f"r{number:02d}" for number in range(20)))
        with terminal(cli, "status", "--watch", rows=10, columns=40, NO_COLOR="1") as (watch, read):
            eventually(lambda: " 20     0 " in read(), what="the first screen")
            cli.ok("acquire", "-t", "T", "-c", "20", JOB_NAME="j" * 100, BUILD_ID="1")
            eventually(lambda: " 0    20 " in read(), what="the change")
            last = read().split("\x1b[H")[-1].replace("\x1b[K", "").replace("\x1b[J", "")
            lines = last.splitlines()
            assert len(lines) <= 10
            assert max(map(len, lines)) <= 40
            assert lines[-1] == "… 8 more lines"
            os.kill(watch.pid, signal.SIGINT)
            assert end_of(watch) == -signal.SIGINT

    def test_it_is_refreshed_though_nothing_changes(self, cli: Cli) -> None:
        cli.pool("T")
        cli.ok("acquire", "-t", "T")
        with terminal(cli, "status", "--watch", rows=24, columns=80) as (_, read):
            eventually(lambda: read().count("\x1b[H") >= 2, what="a second screen")


def next_line(started: Started) -> str:
    assert started.process.stdout is not None
    return started.process.stdout.readline().rstrip("\n")


def next_object(started: Started) -> Any:
    return json.loads(next_line(started))


def readable(started: Started, seconds: float) -> bool:
    return bool(select.select([started.process.stdout], [], [], seconds)[0])


@contextlib.contextmanager
def terminal(
    cli: Cli, *args: str, rows: int, columns: int, **more: str
) -> Iterator[tuple[subprocess.Popen[bytes], Any]]:
    """Run a command with a terminal as its stdout; `read` returns all that it has shown."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    os.set_blocking(master, False)
    env = {name: value for name, value in cli.env.items() if name not in ("COLUMNS", "LINES")}
    env = {**env, "TERM": "xterm", **more}
    process = subprocess.Popen(
        cli.command(*args), stdin=subprocess.DEVNULL, stdout=slave, cwd=cli.cwd, env=env
    )
    os.close(slave)
    shown = bytearray()

    def read() -> str:
        with contextlib.suppress(BlockingIOError, OSError):
            while True:
                shown.extend(os.read(master, 65536))
        return shown.decode().replace("\r\n", "\n")

    try:
        yield process, read
    finally:
        process.kill()
        process.wait()
        os.close(master)
