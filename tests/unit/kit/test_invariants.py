"""The checker of state directories notices each thing that it is there to notice."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.system.process import identify
from tests.kit.forking import ending, fork
from tests.kit.invariants import broken_invariants
from tests.kit.support import Cli

TICKET = "INSERT INTO ticket VALUES ('T', 9, 'x', 'x', 1, 0, {}, 'p')"


@pytest.fixture
def handle(cli: Cli) -> str:
    """The id of a handle that holds T--00 and T--01, of three."""
    cli.pool("T", "T--00", "T--01", "T--02")
    path = cli.ok(
        "acquire", "-t", "T", "-c", "2", "--release-after", "1h", "--guard-pid", own_pid()
    )
    return Path(path.strip()).name


@pytest.fixture(scope="module")
def dead() -> str:
    """A process that lived."""
    pid = fork(signal.pause)
    process = identify(pid).encode()
    os.kill(pid, signal.SIGKILL)
    assert ending(pid) == -signal.SIGKILL
    return process


def own_pid() -> str:
    return str(os.getpid())


@contextlib.contextmanager
def database(cli: Cli) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(cli.state_dir / "state.db")) as db, db:
        yield db


def test_a_sound_state_directory_passes(cli: Cli, handle: str) -> None:
    assert broken_invariants(cli.state_dir) == []


@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        ("DELETE FROM handle", "T--00 is held by HANDLE, of which there is no record"),
        ("UPDATE handle SET state = 'released'", "T--00 is held by HANDLE, which is released"),
        ("UPDATE handle SET guard = 'DEAD'", "T--00 is held by HANDLE, whose guard is dead"),
        ("UPDATE handle SET waiter = 'DEAD'", "T--00 is held by HANDLE, whose waiter is dead"),
        (
            "DELETE FROM lease WHERE name = 'T--00'",
            "T--00 is held by HANDLE, whose record says [] of it",
        ),
        (
            "UPDATE lease SET fence = 9 WHERE name = 'T--00'",
            "T--00 is held by HANDLE, whose record says [(9, 1, 1)] of it",
        ),
        (
            "UPDATE resource SET owner = NULL WHERE name = 'T--00'",
            "HANDLE claims T--00, which None holds",
        ),
        ("DELETE FROM lease", "HANDLE is held with 0 leases"),
        ("UPDATE handle SET state = 'acquiring'", "HANDLE is acquiring, and nobody waits"),
        (TICKET.format("'DEAD'"), "ticket 9 of x is a dead"),
        (TICKET.format("NULL"), "ticket 9 of x is there"),
        ("UPDATE timer SET acquisition = 0", "a timer is armed for acquisition 0 of HANDLE"),
        ("INSERT INTO timer VALUES ('x', '', 1, 0)", "a timer is armed for x, which holds nothing"),
        ("UPDATE pool SET capacity = 4", "pool T miscounts its resources"),
        ("UPDATE meta SET fence = 1", "a resource has a fence that was not given yet"),
        (
            "DELETE FROM event WHERE kind = 'granted'",
            "T--00 is HANDLE's, and by the events None's",
        ),
        (
            "DELETE FROM event WHERE kind = 'queued'",
            "3: granted T--00,T--01 ('T', 1) of HANDLE: it",
        ),
        ("UPDATE event SET names = 'T--02' WHERE kind = 'granted'", "T--02 is None's, and by the"),
        (
            "INSERT INTO event SELECT 9, time, 'queued', backend, type, '', '', handle, 1, '', 1, "
            "0, 8, 0, NULL, NULL, '', '' FROM event WHERE number = 1",
            "ticket ('T', 8) is in the events alone",
        ),
        ("DELETE FROM keeper", "1 handles need a keeper, and there is none"),
    ],
)
def test_a_wrong_row_is_noticed(
    cli: Cli, handle: str, dead: str, damage: str, finding: str
) -> None:
    with database(cli) as db:
        db.execute(damage.replace("DEAD", dead))
    found = broken_invariants(cli.state_dir)
    assert any(line.startswith(finding.replace("HANDLE", handle)) for line in found), found


def test_a_names_file_that_says_something_else_is_noticed(cli: Cli, handle: str) -> None:
    (cli.state_dir / "handles" / handle).write_text("T--00\nT--02")
    (found,) = broken_invariants(cli.state_dir)
    assert found.startswith(
        f"handles/{handle} says 'T--00\\nT--02', the record says 'T--00\\nT--01"
    )


def test_a_missing_names_file_is_noticed(cli: Cli, handle: str) -> None:
    (cli.state_dir / "handles" / handle).unlink()
    (found,) = broken_invariants(cli.state_dir)
    assert found.startswith(f"handles/{handle} says None")


def test_a_file_that_was_not_put_in_place_is_noticed(cli: Cli, handle: str) -> None:
    (cli.state_dir / "handles" / f"{handle}.new").write_text("T--00")
    assert broken_invariants(cli.state_dir) == [f"handles/{handle}.new belongs to no record"]


def test_a_pipe_of_nobody_is_noticed(cli: Cli, handle: str) -> None:
    os.mkfifo(cli.state_dir / "waiters" / "x.7")
    os.mkfifo(cli.state_dir / "waiters" / "x.run")
    assert sorted(broken_invariants(cli.state_dir)) == [
        "waiters/x.7 is no waiter's",
        "waiters/x.run is no living runner's",
    ]


def test_a_fence_that_may_be_drawn_again_is_noticed(cli: Cli, handle: str) -> None:
    with open(cli.state_dir / "state.lock", "r+b") as file:
        file.seek(8192 - 64)
        mark, last, end = struct.unpack("<8sQQ", file.read(24))
        file.seek(8192 - 64)
        file.write(struct.pack("<8sQQ", mark, last - 1, end))
    assert broken_invariants(cli.state_dir) == ["a resource has a fence that may be drawn again"]


def test_a_fence_that_only_the_database_knows_is_not_drawn_again(cli: Cli, handle: str) -> None:
    """As where a process of the version before has drawn it."""
    with contextlib.closing(sqlite3.connect(cli.state_dir / "state.db")) as db, db:
        db.execute("UPDATE meta SET fence = fence + 1")
        db.execute("UPDATE resource SET fence = (SELECT fence FROM meta) WHERE name = 'T--02'")
    assert broken_invariants(cli.state_dir) == []
    with contextlib.closing(sqlite3.connect(cli.state_dir / "state.db")) as db, db:
        db.execute("UPDATE meta SET fence = fence - 1")
    assert "a resource has a fence that may be drawn again" in broken_invariants(cli.state_dir)


def test_an_unfinished_note_is_noticed(cli: Cli, handle: str) -> None:
    with open(cli.state_dir / "state.lock", "r+b") as file:
        file.write(b"+x\0")
    assert broken_invariants(cli.state_dir) == ["a names file is only half changed"]
