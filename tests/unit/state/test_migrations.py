"""leasectl.state.migrations: databases of earlier versions, and the processes still on them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from leasectl.backends.kinds import claim_key_of
from leasectl.engines.local.absent import suspend
from leasectl.engines.local.queues import LocalQueues
from leasectl.errors import LeaseError
from leasectl.model import ReleaseTarget, Timer
from leasectl.state.amendments import note_answer
from leasectl.state.database import SCHEMA_VERSION
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.state.keeper_version import CODE_FOLDER
from leasectl.state.migrations import migrate
from leasectl.system.clock import Clock
from leasectl.system.process import boot_id, identify, own_pid_namespace
from tests.kit.forking import ending, fork
from tests.kit.killing import kill_this_process
from tests.kit.support import Cli, eventually
from tests.unit.state.old_schemas import BY_VERSION

# How schema 2 wrote a handle: its columns by name, all others' by position.
HANDLE_BY_SCHEMA_2 = (
    "INSERT INTO handle (id, backend, type, count, name, ttl_seconds, release_after_seconds, "
    "scope, labels, owner, holder_identity, state, acquisition, guard, waiter, runner, shared_dir, "
    "lost, settings, lost_replies, cancelled, watched) VALUES (?, 'etcd://h', 'T', 1, NULL, NULL, "
    "NULL, 'step', ?, 'o', 'o/h/x', ?, 1, NULL, NULL, NULL, NULL, 0, '', ?, 0, 0)"
)
OTHER_ROWS_BY_SCHEMA_2 = (
    "INSERT INTO pool VALUES ('T', 1, 0, 0)",
    "INSERT INTO resource (name, type, fence, lease_transitions, labels) "
    "VALUES ('a', 'T', 0, 0, '')",
    "INSERT INTO ticket VALUES ('T', 1, 'waits', 'o/h/waits', 1, 5.0, NULL, 'waiter-1')",
    "INSERT OR REPLACE INTO lease VALUES ('held', 'a', 1, 7, 2, 3, 10.0, 11.0, 4)",
    "INSERT OR REPLACE INTO timer VALUES ('held', '', 1, 50.0)",
    "INSERT OR REPLACE INTO timer VALUES ('held', 'a', 1, 40.0)",
    "INSERT OR REPLACE INTO giving_back VALUES ('http://p', 'a', 'b:1:1:1')",
    "INSERT OR REPLACE INTO keeper VALUES (1, 'b:1:1:1')",
)


def write_by_schema_2(db: sqlite3.Connection) -> None:
    for handle in (
        ("held", "pr=7", "held", 2),
        ("waits", "", "acquiring", 0),
        ("adopted", "adopted:owner=T-9/1", "held", 0),
        ("nobodys", "adopted:owner=", "held", 0),
        ("served", "serve:client=10.0.0.1\nserve:key=k", "held", 0),
        ("untold", "serve:client=10.0.0.1", "held", 1),
    ):
        db.execute(HANDLE_BY_SCHEMA_2, handle)
    for statement in OTHER_ROWS_BY_SCHEMA_2:
        db.execute(statement)


@contextlib.contextmanager
def database(directory: Path, version: int) -> Iterator[sqlite3.Connection]:
    """A new state directory as an earlier version left it, and its database."""
    directory.mkdir(mode=0o700)
    for folder in ("handles", "waiters"):
        (directory / folder).mkdir(mode=0o700)
    path = directory / "state.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        os.chmod(path, 0o600)
        db.execute("PRAGMA page_size = 1024")
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(BY_VERSION[version])
        more = () if version == 1 else ("0123456789abcdef",)
        marks = ", ?" * len(more)
        db.execute(f"INSERT INTO meta VALUES (41, ?, ''{marks})", (boot_id(), *more))
        db.execute(f"PRAGMA application_id = {0x6C656173}")
        db.execute(f"PRAGMA user_version = {version}")
        yield db


@pytest.mark.parametrize("version", [2, 3])
def test_a_process_of_a_version_before_puts_and_takes_away_tickets(
    state_dir: Path, version: int
) -> None:
    with database(state_dir, version) as db, opened(state_dir) as state:
        for statement in OTHER_ROWS_BY_SCHEMA_2[:3]:
            db.execute(statement)
        queues = LocalQueues(state, lost=lambda *_: None, clock=Clock())
        with state.transaction(), contextlib.closing(queues.in_order("T")) as tickets:
            (ticket,) = tickets
            assert (ticket.name, ticket.suspended) == (None, False)
            suspend(queues, "T", ticket)
        db.execute("DELETE FROM ticket WHERE type = 'T'")
        db.execute("INSERT INTO ticket VALUES ('T', 1, 'again', 'x', 1, 6.0, NULL, 'waiter-2')")
        with contextlib.closing(queues.in_order("T")) as tickets:
            assert [each.suspended for each in tickets] == [False]


@pytest.fixture
def of_schema_2(state_dir: Path) -> Path:
    with database(state_dir, 2) as db:
        write_by_schema_2(db)
    return state_dir


@contextlib.contextmanager
def opened(directory: Path) -> Iterator[State]:
    with contextlib.closing(State.open(str(directory))) as state:
        yield state


def tables(state: State) -> dict[str, Sequence[object]]:
    """What there is in a database, but for what may differ between two of one version."""
    found: dict[str, Sequence[object]] = {}
    for row in state.query("SELECT name, type, sql FROM sqlite_master WHERE sql IS NOT NULL"):
        if row["type"] == "table":
            columns = state.query(f"PRAGMA table_info({row['name']})")
            found[row["name"]] = [
                row["sql"].rstrip().endswith("WITHOUT ROWID"),
                *(
                    # Where the id was added later, it is the default.
                    (*tuple(column)[:4], column["name"] == "place" or column["dflt_value"])
                    for column in columns
                ),
            ]
        else:
            found[row["name"]] = [re.sub(r"\s+", " ", row["sql"])]
    return found


@pytest.mark.parametrize("version", BY_VERSION)
def test_the_steps_lead_to_what_a_new_database_has(
    state_dir: Path, tmp_path: Path, version: int
) -> None:
    with database(state_dir, version):
        pass
    with opened(state_dir) as old, opened(tmp_path / "new") as new:
        assert tables(old) == tables(new)
        for state in (old, new):
            assert state.query("PRAGMA user_version")[0][0] == SCHEMA_VERSION
        assert len(old.state_id()) == 16
        assert old.query("SELECT fence FROM meta")[0]["fence"] == 41


def test_a_fence_that_was_drawn_before_is_not_drawn_again_without_the_log(
    state_dir: Path, tmp_path: Path
) -> None:
    with database(state_dir, 2) as db:
        db.execute("PRAGMA wal_checkpoint(FULL)")
        db.execute("UPDATE meta SET fence = 77")
        State.open(str(state_dir)).close()
        (tmp_path / "copy").mkdir(mode=0o700)
        for name in ("state.db", "state.lock"):
            shutil.copy(state_dir / name, tmp_path / "copy")
    with opened(tmp_path / "copy") as state, state.transaction():
        assert state.draw_fences(1)[0] > 77


def test_every_version_before_has_its_tables_on_record() -> None:
    assert list(BY_VERSION) == list(range(1, SCHEMA_VERSION))


def test_what_labels_said_is_in_columns(of_schema_2: Path) -> None:
    with opened(of_schema_2) as state:
        rows = state.query("SELECT id, adopted_claim, served, unconfirmed FROM handle ORDER BY id")
        assert [tuple(row) for row in rows] == [
            ("adopted", "T-9/1", 0, 0),
            ("held", None, 0, 0),
            ("nobodys", "", 0, 0),
            ("served", None, 1, 0),
            ("untold", None, 1, 1),
            ("waits", None, 0, 0),
        ]
    check_handles(of_schema_2)


def check_handles(directory: Path) -> None:
    with opened(directory) as state:
        handles = Handles(state)
        held = handles.require("held")
        assert (held.names, held.fences, held.release_at) == (("a",), ("7",), 50.0)
        assert (held.request.labels, held.lost_replies) == ((("pr", "7"),), 2)
        assert (held.served, held.unconfirmed, held.adopted_claim) == (False, False, None)
        assert handles.timers.armed() == [
            Timer(ReleaseTarget("held", 1, ("a",), by="delay"), 40.0),
            Timer(ReleaseTarget("held", 1, by="delay"), 50.0),
        ]
        adopted = handles.require("adopted")
        assert (claim_key_of(adopted), adopted.request.labels) == ("T-9/1", ())
        assert claim_key_of(handles.require("nobodys")) == ""
        assert claim_key_of(held) == "held/1"
        served = handles.require("served")
        assert served.served
        assert dict(served.request.labels) == {"serve:client": "10.0.0.1", "serve:key": "k"}


def test_what_a_process_of_the_version_before_writes_later_reads_the_same(state_dir: Path) -> None:
    with database(state_dir, 2) as db:
        State.open(str(state_dir)).close()
        write_by_schema_2(db)
    check_handles(state_dir)


def test_what_is_written_now_can_be_read_by_a_process_of_the_version_before(
    of_schema_2: Path,
) -> None:
    with opened(of_schema_2) as state, state.transaction():
        handles = Handles(state)
        handles.create(handles.require("adopted")._replace(id="again"), remote=True)
        handles.create(handles.require("served")._replace(id="once more"), remote=True)
        rows = state.query("SELECT id, labels FROM handle WHERE id IN ('again', 'once more')")
        assert dict(map(tuple, rows)) == {
            "again": "adopted:owner=T-9/1",
            "once more": "serve:client=10.0.0.1\nserve:key=k",
        }


def test_a_request_on_record_asks_for_one_type_unless_it_says_more(state_dir: Path) -> None:
    with database(state_dir, 4) as db:
        write_by_schema_2(db)  # 4 writes the same, with flags of its own
        with opened(state_dir) as state:
            record = Handles(state).require("held")
            assert (record.request.types, record.type, record.granted_type) == (("T",), "T", None)
        db.execute(HANDLE_BY_SCHEMA_2, ("later", "", "acquiring", 0))
    with opened(state_dir) as state:
        assert Handles(state).require("later").request.types == ("T",)


def test_a_server_of_the_version_before_goes_on_by_its_own_count(of_schema_2: Path) -> None:
    with opened(of_schema_2) as state:
        handles = Handles(state)
        assert handles.require("untold").lost_replies == 1
        with state.transaction():
            note_answer(state, handles.require("untold"), confirmed=True)
        told = handles.require("untold")
        assert (told.unconfirmed, told.lost_replies) == (False, 0)


def test_many_may_migrate_at_once(of_schema_2: Path) -> None:
    children = [fork(lambda: State.open(str(of_schema_2)).close()) for _ in range(12)]
    assert [ending(child) for child in children] == [0] * 12
    check_handles(of_schema_2)


@pytest.mark.parametrize(
    "statement", ["ALTER", "UPDATE", "CREATE", "PRAGMA user_version =", "COMMIT"]
)
def test_one_that_is_killed_half_way_has_changed_nothing(of_schema_2: Path, statement: str) -> None:
    def die(sql: str) -> None:
        if sql.startswith(statement):
            kill_this_process()

    def migrate_and_die() -> None:
        db = sqlite3.connect(of_schema_2 / "state.db", isolation_level=None)
        db.row_factory = sqlite3.Row
        db.set_trace_callback(die)
        migrate(db, to=SCHEMA_VERSION)

    assert ending(fork(migrate_and_die)) == -signal.SIGKILL
    with contextlib.closing(sqlite3.connect(of_schema_2 / "state.db")) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
        assert (
            db.execute("SELECT name FROM sqlite_master WHERE name LIKE 'keeper_%'").fetchall() == []
        )
    check_handles(of_schema_2)


def test_a_keeper_of_the_version_before_is_asked_to_make_way(of_schema_2: Path) -> None:
    with subprocess.Popen(["sleep", "1000"], env={"PYTHONPATH": CODE_FOLDER}) as process:
        comm = Path(f"/proc/{process.pid}/comm")
        eventually(lambda: comm.read_text() == "sleep\n", what="it has become that")
        with contextlib.closing(sqlite3.connect(of_schema_2 / "state.db")) as db, db:
            row = (own_pid_namespace(), identify(process.pid).encode())
            db.execute("REPLACE INTO keeper (pid_namespace, process) VALUES (?, ?)", row)
        State.open(str(of_schema_2)).close()
        assert process.wait(timeout=10) == -signal.SIGUSR1


def test_one_that_fails_half_way_says_so_and_has_changed_nothing(of_schema_2: Path) -> None:
    path = of_schema_2 / "state.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("ALTER TABLE handle ADD COLUMN unconfirmed")  # which the second step adds last
        before = db.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
        with pytest.raises(sqlite3.OperationalError, match="duplicate column name: unconfirmed"):
            migrate(db, to=SCHEMA_VERSION)
        assert not db.in_transaction
        with pytest.raises(LeaseError, match="unconfirmed"):
            State.open(str(of_schema_2))
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
        assert db.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall() == before


def test_a_command_on_a_directory_of_the_version_before_goes_on_with_what_is_there(
    cli: Cli, of_schema_2: Path
) -> None:
    assert of_schema_2 == cli.state_dir
    with contextlib.closing(sqlite3.connect(of_schema_2 / "state.db")) as db, db:
        db.execute("DELETE FROM ticket")
        db.execute("DELETE FROM timer")
        db.execute("UPDATE handle SET backend = 'local:' WHERE id = 'held'")
        db.execute("DELETE FROM handle WHERE id <> 'held'")
        db.execute("UPDATE resource SET owner = 'held', fence = 7")
    assert cli.ok("release", "--handle", "held") == "a\n"
    assert cli("acquire", "-q", "-w", "0", "-t", "T").code == 0
