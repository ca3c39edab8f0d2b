"""What SQLite's log held is lost: pools stay, no fence comes twice, and nobody is told lies."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from leasectl.backends.contract import Patience
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.release import finish
from leasectl.model import Request
from leasectl.state import database
from leasectl.state.directory import State
from tests.kit.forking import ending, fork
from tests.kit.forking import nothing_runs_on as nothing_runs_on
from tests.kit.support import Cli

CORRUPT, UNKNOWN = 65, 66


def used(cli: Cli, *, times: int = 1) -> None:
    """Take and give back a lease, in a process that ends without closing the database."""

    def use() -> None:
        with cli.service() as service:
            for _ in range(times):
                handle = acquire(service, Request("T"), patience=Patience())
                announce(service, handle)
                finish(service, handle)
            os._exit(0)

    assert ending(fork(use)) == 0


def lose_log(cli: Cli) -> None:
    for name in ("state.db-wal", "state.db-shm"):
        (cli.state_dir / name).unlink(missing_ok=True)


def garble_log(cli: Cli) -> None:
    """All but the head of it: SQLite takes the rest for what was never committed."""
    (cli.state_dir / "state.db-shm").unlink(missing_ok=True)
    with open(cli.state_dir / "state.db-wal", "r+b") as log:
        log.seek(32 + 8)
        log.write(b"\xff" * 64)


def lose_log_and_lock(cli: Cli) -> None:
    lose_log(cli)
    (cli.state_dir / "state.lock").unlink()


def restart(cli: Cli) -> None:
    """The machine stopped before it had written anything of late to the disk."""
    lose_log(cli)
    with contextlib.closing(State.open(str(cli.state_dir))) as state:
        last, end = database.drawn(state._lock_fd)
        database.note_drawn(state._lock_fd, max(0, last - 3), end)
        with state.transaction() as db:
            db.execute("UPDATE meta SET boot_id = 'an earlier one'")


@pytest.fixture
def pool(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(database, "FENCE_BLOCK", 20)
    cli.pool("T", "T--00")
    return "T"


def test_a_pool_is_there_without_its_log(cli: Cli) -> None:
    cli.ok("pool", "create", "T", "--count", "1")
    lose_log(cli)
    assert cli.query("SELECT name FROM resource") == [("T--00",)]
    cli.ok("pool", "add", "T", "--names", "more")
    lose_log(cli)
    assert [name for (name,) in cli.query("SELECT name FROM resource")] == ["T--00", "more"]
    cli.ok("pool", "remove", "T", "--names", "more")
    lose_log(cli)
    assert cli.query("SELECT name FROM resource") == [("T--00",)]
    cli.ok("pool", "delete", "T")
    lose_log(cli)
    assert cli.query("SELECT name FROM resource") == []


@pytest.mark.parametrize("lose", [lose_log, garble_log, lose_log_and_lock, restart])
def test_no_fence_is_given_twice(cli: Cli, pool: str, lose: object) -> None:
    assert callable(lose)
    highest = 0
    for times in (1, 3, database.FENCE_BLOCK + 7, 2):
        used(cli, times=times)
        ((fence,),) = cli.query("SELECT fence FROM resource")
        assert highest + times <= int(str(fence)) <= highest + times + 2 * database.FENCE_BLOCK
        highest = int(str(fence))
        lose(cli)


def test_fences_are_consecutive_from_block_to_block(cli: Cli, pool: str) -> None:
    used(cli, times=database.FENCE_BLOCK + 7)
    assert cli.query("SELECT fence FROM resource") == [(database.FENCE_BLOCK + 7,)]
    assert cli.query("SELECT fence FROM meta") == [(2 * database.FENCE_BLOCK + 1,)]


def test_a_database_that_is_made_anew_goes_on_where_the_one_before_was(cli: Cli, pool: str) -> None:
    used(cli, times=3)
    lose_log(cli)
    (cli.state_dir / "state.db").unlink()
    cli.pool("T", "T--00")
    used(cli)
    ((fence,),) = cli.query("SELECT fence FROM resource")
    assert int(str(fence)) > 3


def test_a_fence_that_the_version_before_drew_is_not_drawn_again(cli: Cli, pool: str) -> None:
    used(cli, times=2)
    with cli.service() as service, service.state.transaction() as db:
        ((last,),) = db.execute("SELECT fence FROM meta").fetchall()
        db.execute("UPDATE meta SET fence = ?", (last + 1,))
        db.execute("UPDATE resource SET fence = ?", (last + 1,))
    used(cli)
    ((fence,),) = cli.query("SELECT fence FROM resource")
    assert int(str(fence)) == last + 2


def test_a_reader_who_is_in_the_way_costs_a_block_and_no_fence(cli: Cli, pool: str) -> None:
    used(cli, times=database.FENCE_BLOCK - 1)
    with cli.service() as reader:
        reader.state.db.execute("BEGIN")
        assert reader.state.query("SELECT fence FROM meta")
        used(cli, times=3)
        reader.state.db.execute("COMMIT")
    ((before,),) = cli.query("SELECT fence FROM resource")
    lose_log(cli)
    used(cli)
    ((fence,),) = cli.query("SELECT fence FROM resource")
    assert int(str(fence)) > int(str(before))


def test_where_the_pools_are_lost_as_well_the_error_says_so(cli: Cli, pool: str) -> None:
    path = cli.ok("acquire", "-t", "T").strip()
    for each in cli.state_dir.glob("state.db*"):
        each.unlink()
    refused = cli("release", path)
    assert refused.code == CORRUPT
    assert f"{path} lists T--00" in refused.err
    assert "the database and its pools were lost" in refused.err
    assert "release --names" not in refused.err
    cli.pool("T", "T--00")
    assert cli("release", path).code == CORRUPT
    assert "release --names T--00" in cli("release", path).err


def test_a_handle_without_its_record_is_damage_and_not_a_mistake(cli: Cli, pool: str) -> None:
    path = cli.ok("acquire", "-t", "T").strip()
    handle = Path(path)
    lose_log(cli)
    for command in ("release", "reacquire", "renew", "cat"):
        for named in (path, handle.name):
            finished = cli(command, "--handle", named)
            assert finished.code == CORRUPT, finished
            assert f"{path} lists T--00" in finished.err
            assert "release --names T--00" in finished.err
    assert handle.read_text() == "T--00"
    # A copy elsewhere is released by its names, as ever; nobody holds them.
    copy = cli.cwd / "copy"
    copy.write_text("T--00\n")
    assert cli("release", "--handle", str(copy)).code == 0
    # And what isn't a names file, or names nothing, is no handle.
    handle.write_text("")
    assert cli("release", "--handle", path).code == UNKNOWN
    handle.write_text("somebody's own\n")
    assert cli("release", "--handle", path).code == UNKNOWN
