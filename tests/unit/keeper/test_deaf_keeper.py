"""A keeper whose pipe somebody has removed, or whose whole directory: nobody could wake it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from leasectl.backends.contract import Patience
from leasectl.keeper import loop
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.release import release
from leasectl.model import Request, whole
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.system.process import own_pid_namespace
from tests.kit.doctor_reports import doctor
from tests.kit.forking import ending, fork
from tests.kit.forking import nothing_runs_on as nothing_runs_on
from tests.kit.support import Cli, Started
from tests.kit.waits import eventually

pytestmark = pytest.mark.once

HOUR = Request("T", release_after_seconds=3600.0)


@pytest.fixture
def unhurried(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> int:
    """A keeper that never looks by itself; its pid."""
    cli.pool("T")
    monkeypatch.setattr(loop, "_LONGEST_SLEEP_SECONDS", 3600.0)
    go_read, go = os.pipe()

    def keep() -> None:
        os.close(go)
        os.read(go_read, 1)
        loop.main(str(cli.state_dir))

    pid = fork(keep)
    os.close(go_read)

    monkeypatch.setattr(keeper_process, "_fork_candidate", lambda _argv: (pid, go))
    with cli.service() as service:
        with monkeypatch.context() as patch:  # or it would find nothing to keep, and end
            patch.setattr(keeper_process, "ensure", lambda _state: None)
            announce(service, acquire(service, HOUR, patience=Patience()))
        keeper_process.ensure(service.state)
    eventually(lambda: is_settled(cli, pid))
    return pid


def pipe(cli: Cli) -> Path:
    return cli.state_dir / f"keeper.{own_pid_namespace()}"


def guarded(cli: Cli, pool: str = "T") -> Started:
    """A process that guards a lease."""
    guard = cli.spawn(["sleep", "1000"])
    cli.ok("acquire", "-q", "-w", "0", "-t", pool, "--guard-pid", str(guard.pid))
    return guard


def is_settled(cli: Cli, pid: int) -> bool:
    """Whether a keeper can be woken, and sleeps."""
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return pipe(cli).exists() and state == "S"


def test_whoever_finds_no_pipe_is_heard_all_the_same(cli: Cli, unhurried: int) -> None:
    pipe(cli).unlink()
    guard = guarded(cli)
    guard.kill()
    eventually(lambda: len(cli.held()) == 1, what="the guard's lease is given back")
    # And from then on it can be woken as ever.
    eventually(lambda: is_settled(cli, unhurried))
    with cli.service() as service, service.state.transaction():
        (handle,) = service.handles.active()
        release(service, whole(handle))
        keeper_process.wake(service.state)
    assert ending(unhurried) == 0
    assert not pipe(cli).exists()


def test_a_directory_that_is_made_anew_is_not_that_of_the_old_keeper(
    cli: Cli, tmp_path: Path
) -> None:
    cli.pool("T")
    old_guard = guarded(cli)
    (old,) = eventually(cli.keepers)
    eventually(lambda: is_settled(cli, old))
    shutil.rmtree(cli.state_dir)
    cli.pool("T")
    guard = guarded(cli)
    (new,) = eventually(cli.keepers)
    assert new != old
    eventually(lambda: is_settled(cli, new))
    inode = pipe(cli).stat().st_ino
    old_guard.kill()
    eventually(lambda: not Path(f"/proc/{old}").exists(), what="the old keeper ends")
    assert pipe(cli).stat().st_ino == inode
    # It has put nothing into a folder that isn't its own.
    assert len(list((cli.state_dir / "handles").iterdir())) == 1
    guard.kill()
    guard = guarded(cli)
    guard.kill()
    eventually(lambda: cli.held() == {}, what="the new keeper hears")


def test_doctor_sees_it_and_mends_it(cli: Cli) -> None:
    cli.pool("T")
    guarded(cli)
    (keeper,) = eventually(cli.keepers)
    eventually(lambda: is_settled(cli, keeper))
    assert doctor(cli)["keeper"]["status"] == "ok"
    os.kill(keeper, signal.SIGSTOP)
    pipe(cli).unlink()
    found = doctor(cli)["keeper"]
    assert found["status"] == "warn"
    assert "commands can't wake it" in found["what"]
    os.kill(keeper, signal.SIGCONT)
    fixed = doctor(cli, "--fix")["keeper"]
    assert fixed["status"] == "ok"
    assert pipe(cli).exists()


@pytest.fixture
def copied(cli: Cli, tmp_path: Path) -> Path:
    """A copy of a state directory whose keeper lives, with one of two leases held."""
    cli.pool("T", "T--00", "T--01")
    guarded(cli)
    (keeper,) = eventually(cli.keepers)
    eventually(lambda: is_settled(cli, keeper))
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", cli.state_dir, copy], check=True)
    return copy


def watches_a_guard(cli: Cli, **env: str) -> bool:
    """Whether somebody gives back what a guard holds that ends."""
    guard = cli.spawn(["sleep", "1000"])
    handle = cli.ok("acquire", "-q", "-t", "T", "--guard-pid", str(guard.pid), **env).strip()
    assert cli.ok("cat", "--handle", handle, **env) == "T--01\n"
    guard.kill()
    # Who waits asks nobody but the keeper.
    return cli("acquire", "-q", "-w", "5m", "-t", "T", **env).code == 0


@pytest.mark.parametrize("version", [None, "0.0.1"])
def test_a_copy_of_a_directory_has_a_keeper_of_its_own(
    cli: Cli, copied: Path, version: str | None
) -> None:
    (keeper,) = cli.keepers()
    if version is not None:
        with contextlib.closing(State.open(str(copied))) as state, state.transaction() as db:
            db.execute("UPDATE keeper SET version = ?", (version,))
    assert watches_a_guard(cli, LEASECTL_STATE_DIR=str(copied))
    assert cli.keepers() == [keeper]


def test_so_has_a_backup_that_is_put_in_place(cli: Cli, copied: Path, tmp_path: Path) -> None:
    cli.state_dir.rename(tmp_path / "original")
    copied.rename(cli.state_dir)
    assert watches_a_guard(cli)


def test_doctor_gives_a_copy_its_own(cli: Cli, copied: Path) -> None:
    (keeper,) = cli.keepers()
    mended = cli("doctor", "--fix", LEASECTL_STATE_DIR=str(copied))
    assert "this state directory is a copy; started a keeper" in mended.out
    with contextlib.closing(State.open(str(copied))) as state:
        own = keeper_process.running(state)
    assert own is not None
    assert own.pid != keeper
    assert cli.keepers() == [keeper]
