"""Who cleans /tmp removes empty folders, and scripts may put one where a handle's file was."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from leasectl.errors import StateUnwritable
from leasectl.model import Request
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from tests.kit.doctor_reports import doctor
from tests.kit.support import Cli
from tests.kit.waits import eventually

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
    waiter = cleaned.start("acquire", "-q", "-t", "T", "-w", "60")
    eventually(cleaned.waiting)
    assert cleaned.ok("release", "--handle", handle) == "T--00\n"
    assert waiter.finish().code == 0


def test_run_goes_on(cleaned: Cli) -> None:
    assert cleaned.ok("run", "-q", "-t", "T", "--", "echo", "done") == "done\n"


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


def test_what_a_killed_writer_left_half_done_is_no_matter_then(cli: Cli) -> None:
    cli.pool("T", "T--00")
    handle = cli.ok("acquire", "-t", "T").strip()
    folder_instead(handle, holding="somebody's own")
    with open(cli.state_dir / "state.lock", "r+b") as file:
        file.write(b"+" + Path(handle).name.encode() + b"\0")
    cli.ok("release", "--handle", handle)
    assert cli.held() == {}


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
