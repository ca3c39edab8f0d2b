"""Whose handles are left, and folders that somebody removed, or put where a handle's file was."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from leasectl.errors import StateUnwritable
from leasectl.leases.recovery import release_abandoned
from leasectl.model import Process, Request
from leasectl.state import pipes
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.system.process import is_dead, this_process
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk
from tests.kit.doctor_reports import doctor
from tests.kit.support import Cli
from tests.kit.waits import eventually

GONE = this_process()._replace(start_time=1)  # whose pid another has by now


def test_only_those_whose_guard_or_waiter_is_dead_are_left(desk: Desk) -> None:
    desk.pool(4)
    desk.acquire()
    desk.acquire(guard=this_process())
    guarded, waited = desk.acquire(guard=GONE), desk.acquire()
    only_watched = pipes.ids_of_the_dead(desk.state, only_watched=True)
    assert only_watched == [guarded.id]
    with desk.state.transaction() as db:
        waiter = (GONE.encode(), waited.id)
        db.execute("UPDATE handle SET waiter = ? WHERE id = ?", waiter)
    assert pipes.ids_of_the_dead(desk.state) == sorted([guarded.id, waited.id])
    assert pipes.ids_of_the_dead(desk.state, only_watched=True) == [guarded.id]
    release_abandoned(desk.service)
    assert pipes.ids_of_the_dead(desk.state) == []
    assert len(desk.held()) == 2


@pytest.mark.parametrize("whose", ["guard", "waiter"])
def test_one_whose_process_none_can_be_is_left_for_who_says_what_is_wrong(
    desk: Desk, whose: str
) -> None:
    desk.pool(2)
    desk.acquire(guard=this_process())
    damaged = desk.acquire()
    with desk.state.transaction() as db:
        db.execute(f"UPDATE handle SET {whose} = 'somebody' WHERE id = ?", (damaged.id,))
    assert pipes.ids_of_the_dead(desk.state) == [damaged.id]


def test_of_many_processes_no_more_are_looked_at_than_is_said(desk: Desk) -> None:
    desk.pool(3)
    # Those pids are there, so that only a look tells that they are others' by now.
    gone = [this_process()._replace(pid=pid, start_time=1) for pid in (os.getpid(), os.getppid())]
    handles = sorted(desk.acquire(guard=each).id for each in gone)
    assert pipes.ids_of_the_dead(desk.state) == handles
    assert pipes.ids_of_the_dead(desk.state, most_looked_at=2) == handles
    assert pipes.ids_of_the_dead(desk.state, most_looked_at=1) == handles[:1]
    assert pipes.ids_of_the_dead(desk.state, most_looked_at=0) == []


def test_a_process_that_guards_many_is_asked_for_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.pool(20)
    for _ in range(20):
        desk.acquire(guard=this_process())
    asked = []

    def ask(process: Process) -> bool:
        asked.append(process)
        return is_dead(process)

    monkeypatch.setattr("leasectl.system.process.is_dead", ask)
    assert pipes.ids_of_the_dead(desk.state) == []
    assert asked == [this_process()]


def test_many_handles_are_read_in_as_many_statements_as_one(desk: Desk) -> None:
    desk.pool(20)
    handles = [desk.acquire(Request("T", count=2)) for _ in range(10)]
    said: list[str] = []
    desk.state.db.set_trace_callback(said.append)
    read = desk.service.handles.active()
    desk.state.db.set_trace_callback(None)
    assert sorted(read) == sorted(handles)
    assert len(said) == 2


UNWRITABLE = 73


@pytest.fixture
def cleaned(cli: Cli) -> Cli:
    """A state directory that somebody has cleaned up."""
    cli.pool("T", "T--00")
    for folder in ("handles", "waiters"):
        (cli.state_dir / folder).rmdir()
    return cli


def folder_instead(path: str, *, holding: str | None = None) -> Path:
    """Put a folder where a handle's file was."""
    Path(path).unlink()
    Path(path).mkdir()
    if holding is not None:
        Path(path, holding).touch()
    return Path(path)


def test_every_command_goes_on(cleaned: Cli) -> None:
    assert "T--00" in cleaned.ok("status", "-t", "T")
    report = doctor(cleaned)
    assert (report.code, report.statuses()) == (0, {})
    handle = cleaned.ok("acquire", "-t", "T").strip()
    assert Path(handle).read_text() == "T--00"
    assert Path(handle).stat().st_mode & 0o777 == 0o600
    waiter = cleaned.start("acquire", "-q", "-t", "T", "-w", "5m")
    eventually(cleaned.waiting)
    assert cleaned.ok("release", "--handle", handle) == "T--00\n"
    assert waiter.finish().code == 0


def test_the_files_of_handles_are_written_anew(cli: Cli) -> None:
    cli.pool("T")
    handle = cli.ok("acquire", "-t", "T", "-c", "2").strip()
    shutil.rmtree(cli.state_dir / "handles")
    assert handle in doctor(cli)["records"]["what"]
    assert doctor(cli, "--fix")["records"]["status"] == "ok"
    assert Path(handle).read_text() == "T--00\nT--01"
    shutil.rmtree(cli.state_dir / "handles")
    assert cli.ok("release", "--handle", handle) == "T--00\nT--01\n"


@pytest.mark.parametrize("holding", [None, "somebody's own"])
def test_a_folder_in_place_of_a_handle_s_file_holds_nothing_up(
    cli: Cli, holding: str | None
) -> None:
    cli.pool("T", "T--00")
    handle = cli.ok("acquire", "-t", "T").strip()
    folder = folder_instead(handle, holding=holding)
    for command in (["status"], ["cat", "--handle", handle], ["release", "--handle", handle]):
        cli.ok(*command)
    assert cli.held() == {}
    finished = cli("reacquire", "--handle", handle)
    if holding is None:
        assert finished.code == 0
        assert Path(handle).read_text() == "T--00"
    else:
        assert finished.code == UNWRITABLE
        assert f"{handle} is a folder" in finished.err
        assert cli.held() == {}
        assert (folder / holding).exists()
    cli.ok("status")
    other = cli.ok("acquire", "-t", "T") if holding else ""
    assert bool(other) == (holding is not None)


def test_doctor_says_what_to_move(cli: Cli) -> None:
    cli.pool("T", "T--00")
    handle = cli.ok("acquire", "-t", "T").strip()
    folder = folder_instead(handle, holding="somebody's own")
    found = doctor(cli, "--fix")["records"]
    assert found["status"] == "fail"
    assert f"couldn't be fixed: {handle} is a folder" in found["advice"]
    folder.rename(cli.cwd / "moved")
    assert doctor(cli, "--fix")["records"]["status"] == "ok"
    assert Path(handle).read_text() == "T--00"


def test_a_grant_that_cannot_be_listed_changes_nothing(cli: Cli) -> None:
    cli.pool("T", "T--00")
    handle = cli.hold(Request("T"))
    path = str(cli.state_dir / "handles" / handle.id)
    folder_instead(path, holding="x")
    with (
        cli.service() as service,
        pytest.raises(StateUnwritable, match="is a folder"),
        service.state.transaction() as db,
    ):
        db.execute("UPDATE handle SET lost = 1")
        service.state.stage_names(handle.id, ["T--00"])
    with cli.service() as service:
        assert not Handles(service.state).require(handle.id).lost


def test_who_has_it_open_sees_that_another_is_in_its_place(state_dir: Path) -> None:
    with contextlib.closing(State.open(str(state_dir))) as state:
        assert not state.was_removed()
        state_dir.rename(state_dir.with_name("elsewhere"))
        assert state.was_removed() is True
        with contextlib.closing(State.open(str(state_dir))) as another:
            assert state.was_removed()
            assert not another.was_removed()
