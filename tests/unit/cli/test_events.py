"""``leasectl events``"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import sys
from pathlib import Path

import pytest

from leasectl.model import parse_process
from leasectl.pools.history import parse_event
from leasectl.state.event import Event
from tests.kit.support import Cli, Started, stop
from tests.kit.terminal import Terminal
from tests.kit.waits import end_of, eventually

# The code is the same on every Python.
pytestmark = pytest.mark.once


def events(cli: Cli, *args: str, **env: str | None) -> list[Event]:
    return [parse_event(line) for line in cli.ok("events", "--json", *args, **env).splitlines()]


def told(cli: Cli, *args: str, **env: str | None) -> list[tuple[str, str]]:
    """The kinds of all but the pools' own, and by what they came about."""
    found = events(cli, *args, **env)
    return [(each.kind, each.by) for each in found if not each.kind.startswith("pool")]


def insert(cli: Cli, **changes: object) -> None:
    """Write an event that no command of ours would."""
    with contextlib.closing(sqlite3.connect(cli.state_dir / "state.db")) as db, db:
        columns = [row[1] for row in db.execute("PRAGMA table_info(event)")][1:]
        row = {**dict.fromkeys(columns, ""), "time": 1.0, "kind": "queued", "type": "T"}
        row = {**row, "wait_seconds": None, "hold_seconds": None, **changes}
        marks = ", ".join("?" * len(row))
        db.execute(f"INSERT INTO event ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))


class TestLines:
    def test_each_is_one_that_fits_the_terminal(self, cli: Cli) -> None:
        cli.pool("T", *(f"T--{n:02d}" for n in range(9)))
        handle = cli.ok("acquire", "T", "-c", "9", "--priority", "4").strip()
        assert cli("acquire", "T", "-w", "0").code == 75
        cli.ok("release", handle)
        lines = cli.ok("events", COLUMNS="90").splitlines()
        assert max(map(len, lines)) <= 90
        said = [line[22:] for line in lines if not line.startswith(" ")]
        assert said[0].startswith("pool made       T  by test@host/")
        assert said[1].startswith("queued          T  for 9 resources with priority 4,")
        assert said[2].startswith("granted         T  --00, --01, --02, --03, --04 and 4 more aft")
        assert said[4].startswith("gave up         T  after 0")
        assert said[5].startswith("released        T  --00, --01, --02, --03, --04 and 4 more aft")

    def test_on_a_terminal_as_many_are_shown_as_fit_it(self, cli: Cli) -> None:
        cli.pool("T")
        for _ in range(30):
            insert(cli, kind="queued", holder_identity=f"{'long-job-' * 15}/1/host/T-a")
        argv = [sys.executable, "-m", "leasectl", "events"]
        env = {**os.environ, **cli.env, "TERM": "xterm", "LINES": "24", "COLUMNS": "80"}
        with contextlib.closing(Terminal(argv, env, cli.cwd)) as terminal:
            shown = terminal.until(r"last (\d+) events; show more with -n")
            lines = shown.string[: shown.start()].count("\n")
            number = shown.string.count("queued")
            assert terminal.ending() == 0
        assert (shown[1], 0 < lines <= 22) == (str(number), True)

    def test_in_a_file_everything_is_whole(self, cli: Cli) -> None:
        cli.pool("T")
        handle = Path(cli.ok("acquire", "T", "-c", "2").strip()).name
        line = cli.ok("events").splitlines()[-1]
        begin, after, end = re.split(r"after ([\d.]+)s", line[19:])
        assert begin == "Z  granted         T  T--00,T--01 "
        assert end == f" to {identity(cli, handle)}"
        assert float(after) >= 0

    def test_what_could_harm_a_terminal_never_reaches_it(self, cli: Cli) -> None:
        cli.pool("T")
        for field in ("type", "names", "holder_identity", "reason", "ended_by", "kind"):
            insert(cli, **{"kind": "released", field: "\x1b]0;x\x07\n\u202eevil"})
        for args in ((), ("--json",)):
            out = cli.ok("events", *args)
            assert all(each.isprintable() for each in out.split("\n"))
            assert len(out.splitlines()) == 7

    def test_nothing_found_is_said(self, cli: Cli) -> None:
        assert "no events yet; they are recorded when a lease is acquired" in cli("events").err
        of_dry_run = cli("events", "--backend", "none:")
        assert of_dry_run.err == "leasectl: a dry run leases nothing, so there are no events\n"
        cli.pool("T")
        assert cli("events", "--name", "x").err == (
            "leasectl: no event matches; show all with: leasectl events\n"
        )
        missed = cli("events", "-t", "U")
        assert (missed.code, missed.out) == (66, "")
        assert 'no pool "U"' in missed.err

    @pytest.mark.parametrize(
        ("args", "code"),
        [
            (("-f", "--until", "1h"), 64),
            (("--since", "1h", "--until", "2h"), 64),
            (("--since", "soon"), 64),
            (("-n", "-1"), 64),
            (("--handle", ""), 64),
            (("-t", "../x"), 64),
        ],
    )
    def test_what_can_not_be_meant_is_refused(
        self, cli: Cli, args: tuple[str, ...], code: int
    ) -> None:
        refused = cli("events", *args)
        assert (refused.code, refused.out, refused.err.count("\n")) == (code, "", 1)


def identity(cli: Cli, handle: str) -> str:
    ((found,),) = cli.query("SELECT holder_identity FROM handle WHERE id = ?", handle)
    return str(found)


class TestWhatIsTold:
    def test_by_what_a_lease_ended(self, cli: Cli) -> None:
        cli.pool("T")
        cli.ok("release", cli.ok("acquire", "T").strip())
        cli.ok("run", "T", "--", "true")
        handle = cli.ok("acquire", "T").strip()
        cli.ok("release", handle, "--delay", "0", "--detach")
        eventually(lambda: not cli.held())
        guard = cli.spawn(["sleep", "60"])
        cli.ok("acquire", "T", "--guard-pid", str(guard.process.pid))
        guard.kill()
        eventually(lambda: not cli.held())
        ends = [by for kind, by in told(cli) if kind == "released"]
        assert ends == ["command", "run", "delay", "guard"]

    def test_a_stopped_run_keeps_its_lease_and_gives_it_back_itself(self, cli: Cli) -> None:
        cli.pool("T", "T--00")
        run = cli.start("run", "T", "--", "sleep", "60")
        (guard,) = eventually(lambda: cli.query("SELECT guard FROM handle WHERE guard > ''"))
        waiter = cli.start("acquire", "T")
        eventually(cli.waiting)
        stop(run.pid, cli.state_dir)
        os.kill(parse_process(str(guard[0])).pid, signal.SIGKILL)
        cli.ok("status")  # which recovers what the dead hold
        assert cli.waiting()
        run.signal(signal.SIGCONT)
        assert run.finish().code == -signal.SIGKILL
        assert waiter.finish().code == 0
        assert [by for kind, by in told(cli) if kind == "released"] == ["run"]

    def test_only_the_wanted_are_shown(self, cli: Cli) -> None:
        cli.pool("T")
        cli.pool("U")
        first = cli.ok("acquire", "T").strip()
        cli.ok("acquire", "U", JOB_NAME="night", BUILD_ID="7")
        assert {each.type for each in events(cli, "-t", "U")} == {"U"}
        assert {each.type for each in events(cli, "U")} == {"U"}
        assert told(cli, "--handle", first) == [("queued", ""), ("granted", "")]
        assert told(cli, "--handle", Path(first).name) == [("queued", ""), ("granted", "")]
        assert {each.type for each in events(cli, "--holder", "night/7/")} == {"U"}
        assert [e.kind for e in events(cli, "--name", "T--00")] == ["pool made", "granted"]
        assert [e.number for e in events(cli, "-n", "2")] == [5, 6]
        assert events(cli, "--until", "1h") == []
        assert len(events(cli, "--since", "1h")) == 6

    def test_a_wrong_word_for_how_many_keeps_nobody_from_a_lease(self, cli: Cli) -> None:
        cli.pool("T")
        for args in (("acquire", "T"), ("run", "T", "--", "true"), ("events",)):
            done = cli(*args, LEASECTL_KEEP_EVENTS="many")
            assert done.code == 0
            assert done.err.startswith('leasectl: LEASECTL_KEEP_EVENTS "many": write an age')
            assert done.err.count("\n") == 1
        assert ("granted", "") in told(cli)

    def test_no_command_line_and_no_environment_is_written_down(self, cli: Cli) -> None:
        cli.pool("T")
        cli.ok("run", "T", "--label", "k=labelled", "--", "sh", "-c", ": hush-hush", SECRET="psst")
        (rows,) = cli.query(
            "SELECT group_concat(quote(event.reason) || holder_identity) FROM event"
        )
        everything = json.dumps([each._asdict() for each in events(cli)]) + str(rows)
        assert not [word for word in ("hush-hush", "psst", "labelled") if word in everything]


class TestFollowing:
    def follow(self, cli: Cli, *args: str) -> Started:
        following = cli.start("events", "-f", "--json", *args)
        eventually(lambda: cli.query("SELECT * FROM follower"))
        return following

    def test_each_is_shown_once_as_it_comes(self, cli: Cli) -> None:
        cli.pool("T")
        following = self.follow(cli, "-t", "T")
        cli.ok("run", "T", "--", "true")
        cli.pool("U")
        assert following.process.stdout is not None
        shown = [parse_event(following.process.stdout.readline()) for _ in range(4)]
        assert [each.kind for each in shown] == ["pool made", "queued", "granted", "released"]
        asleep(following)
        cli.ok("acquire", "T")
        more = [parse_event(following.process.stdout.readline()) for _ in range(2)]
        assert [each.number for each in more] == [6, 7]
        following.signal(signal.SIGTERM)
        assert following.finish().code == -signal.SIGTERM
        assert cli.query("SELECT * FROM follower") == []
        assert list((cli.state_dir / "waiters").iterdir()) == []

    def test_what_went_before_it_was_shown_is_said_once(self, cli: Cli) -> None:
        cli.pool("T")
        following = self.follow(cli, "-t", "T")
        asleep(following)
        following.signal(signal.SIGSTOP)
        with cli.service() as service:
            for _ in range(4):
                with service.state.transaction():
                    service.state.events.kept_number = 10
                    for n in range(64):
                        service.state.events.add(5000.0 + n, "queued", "T")
        following.signal(signal.SIGCONT)
        eventually(lambda: cli.query("SELECT 1 FROM event WHERE number = 257"))
        asleep(following)
        cli.ok("acquire", "T")
        asleep(following)
        following.signal(signal.SIGINT)
        finished = following.finish()
        first, *rest = [parse_event(line).number for line in finished.out.splitlines()]
        assert first == 1
        assert rest == [*range(rest[0], 260)]
        (line,) = finished.err.splitlines()
        assert line.startswith(f"leasectl: {rest[0] - 2} events of all pools between 1970-01-01T0")
        assert "were removed before being shown" in line

    def test_it_begins_with_the_last_ones(self, cli: Cli) -> None:
        for n in range(12):
            cli.pool(f"T{n}")
        for args, numbers in (
            ((), range(3, 13)),
            (("-n", "1"), [12]),
            (("--since", "1h"), range(1, 13)),
        ):
            following = self.follow(cli, *args)
            asleep(following)
            following.signal(signal.SIGINT)
            lines = following.finish().out.splitlines()
            assert [parse_event(line).number for line in lines] == [*numbers]

    def test_it_ends_when_nobody_reads_it_any_more(self, cli: Cli) -> None:
        cli.pool("T")
        following = self.follow(cli)
        assert following.process.stdout is not None
        following.process.stdout.close()
        assert end_of(following.process) == -signal.SIGPIPE


def asleep(following: Started) -> None:
    """Wait until it sleeps in a poll(2) that has no time limit."""
    pid = following.process.pid

    def sleeps() -> bool:
        call = Path(f"/proc/{pid}/syscall").read_text().split()
        return call[0] != "running" and call[3] in ("0xffffffff", "0xffffffffffffffff")

    eventually(sleeps, what="it sleeps")


def test_doctor_says_how_many_there_are_and_whether_more_can_be_written(cli: Cli) -> None:
    cli.pool("T")
    (line,) = [each for each in cli.ok("doctor").splitlines() if " events " in each]
    assert line.startswith("ok    events           1 event since 20")
    with contextlib.closing(sqlite3.connect(cli.state_dir / "state.db")) as db, db:
        db.execute("CREATE TRIGGER x BEFORE INSERT ON event BEGIN SELECT RAISE(ABORT, 'no'); END")
    handle = cli("acquire", "T")
    assert handle.code == 0
    assert handle.err.count("can't write events to") == 1
    assert cli("run", "T", "--", "true").err.count("can't write events") == 1
    warned = cli("doctor")
    (line,) = [each for each in warned.out.splitlines() if " events " in each]
    assert line.startswith("warn  events           1 event since 20")
    assert "can't be written (no)" in line
