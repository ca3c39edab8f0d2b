"""What a writer that was killed half-way leaves of the names files, and what becomes of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from leasectl.errors import StateUnwritable
from leasectl.model import Request
from leasectl.state import names_files
from leasectl.state.names_files import NamesFiles
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk
from tests.kit.support import Cli

SOUND = "T--00\nT--01"


@pytest.fixture
def names(desk: Desk) -> Path:
    """The names file of a handle that holds two."""
    desk.pool(2)
    handle = desk.acquire(Request("T", count=2))
    path = Path(desk.state.names_path(handle.id))
    assert path.read_text() == SOUND
    return path


def leave_half_way(desk: Desk, *paths: Path) -> None:
    """Leave what a writer notes before it touches names files, and didn't live to take away."""
    text = b"+" + "\n".join(path.name for path in paths).encode() + b"\0"
    (desk.directory / "state.lock").write_bytes(text)


def next_write(desk: Desk) -> None:
    """Let somebody else change something."""
    with desk.state.transaction():
        pass
    with open(desk.directory / "state.lock", "rb") as lock:
        assert lock.read(1) == b"\0"


def test_one_that_is_missing_is_made_anew(desk: Desk, names: Path) -> None:
    names.unlink()
    leave_half_way(desk, names)
    next_write(desk)
    assert names.read_text() == SOUND
    assert names.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("wrong", ["", "T--00", "T--01\nT--00", SOUND + "\n"])
def test_one_that_says_something_else_is_written_anew(desk: Desk, names: Path, wrong: str) -> None:
    names.write_text(wrong)
    leave_half_way(desk, names)
    next_write(desk)
    assert names.read_text() == SOUND


def test_one_of_which_there_is_no_record_goes(desk: Desk, names: Path) -> None:
    stray = names.with_name("T-stray")
    stray.write_text("T--00")
    leave_half_way(desk, names, stray)
    next_write(desk)
    assert not stray.exists()
    assert names.exists()


@pytest.mark.parametrize("is_there", [True, False])
def test_one_of_a_handle_that_holds_nothing_is_empty(
    desk: Desk, names: Path, is_there: bool
) -> None:
    with desk.state.transaction() as db:
        db.execute("DELETE FROM lease")
    if not is_there:
        names.unlink()
    leave_half_way(desk, names)
    next_write(desk)
    assert names.read_text() == ""


def test_one_in_whose_place_somebody_has_a_folder_holds_nobody_up(desk: Desk, names: Path) -> None:
    names.unlink()
    (names / "somebody's own").mkdir(parents=True)
    stray = names.with_name("T-stray")
    stray.touch()
    leave_half_way(desk, names, stray)
    next_write(desk)
    assert os.listdir(names) == ["somebody's own"]
    assert not stray.exists(), "those after it are seen to"


def test_a_note_that_was_cut_off_is_read_as_far_as_it_goes(desk: Desk, names: Path) -> None:
    names.unlink()
    (desk.directory / "state.lock").write_bytes(b"+" + names.name.encode())
    next_write(desk)
    assert names.read_text() == SOUND


def test_what_was_to_replace_one_goes(desk: Desk, names: Path) -> None:
    replacing = Path(f"{names}.new")
    replacing.write_text("half")
    leave_half_way(desk, names)
    next_write(desk)
    assert sorted(os.listdir(names.parent)) == [names.name]


def test_without_a_note_nobody_looks(desk: Desk, names: Path) -> None:
    assert (desk.directory / "state.lock").read_bytes()[:1] == b"\0"  # whoever wrote took it away
    names.write_text("scribbled")
    with desk.state.transaction():
        pass
    assert names.read_text() == "scribbled"


def test_to_remove_one_that_is_not_there_notes_nothing(
    desk: Desk, names: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[None] = []
    monkeypatch.setattr(NamesFiles, "_note", lambda *_: noted.append(None))
    with desk.state.transaction():
        desk.state.stage_names("T-other", None)
    assert noted == []
    with desk.state.transaction():
        desk.state.stage_names("T-other", ["first"])
        desk.state.stage_names("T-other", None)
    assert noted == [None]
    assert os.listdir(names.parent) == [names.name]


@pytest.mark.parametrize("said", [["another"], [], None])
def test_to_write_them_leaves_no_descriptor_open(
    desk: Desk, names: Path, said: list[str] | None
) -> None:
    before = os.listdir("/proc/self/fd")
    for handle_id in (names.name, "T-other", "T-other"):
        with desk.state.transaction():
            desk.state.stage_names(handle_id, said)
    assert os.listdir("/proc/self/fd") == before
    there = {names.name, "T-other"} if said is not None else set()
    assert set(os.listdir(names.parent)) == there


def test_while_they_change_that_can_be_told_without_the_lock(
    desk: Desk, names: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool] = []
    rename = os.rename

    def look_and_rename(before: str, after: str, **folders: int) -> None:
        found.append(desk.state.names_files.are_changing)
        rename(before, after, **folders)

    monkeypatch.setattr(os, "rename", look_and_rename)
    with desk.state.transaction():
        desk.state.stage_names(names.name, ["another"])
        assert not desk.state.names_files.are_changing
    assert found == [True]
    assert not desk.state.names_files.are_changing
    assert names.read_text() == "another"


def test_a_note_that_does_not_fit_on_the_disk_changes_nothing(
    desk: Desk, names: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.pwrite

    def cut(fd: int, content: bytes, offset: int) -> int:
        return write(fd, content[:-2] if content.startswith(b"+") else content, offset)

    monkeypatch.setattr(os, "pwrite", cut)
    with pytest.raises(StateUnwritable, match=r"state\.lock: No space"), desk.state.transaction():
        desk.state.stage_names(names.name, ["another"])
    assert names.read_text() == SOUND
    assert not desk.state.names_files.are_changing


def test_an_empty_folder_in_its_place_makes_room_for_one(desk: Desk, names: Path) -> None:
    names.unlink()
    names.mkdir()
    with desk.state.transaction():
        desk.state.stage_names(names.name, ["another"])
    assert names.read_text() == "another"
    names.unlink()
    names.mkdir()
    with desk.state.transaction():
        desk.state.stage_names(names.name, [])
    assert names.is_dir(), "it lists nothing"


@pytest.mark.parametrize("taken", [0, 3])
def test_a_writer_that_fails_half_way_leaves_nothing(
    desk: Desk, names: Path, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    write = os.write

    def full(fd: int, content: bytes) -> int:
        if content != b"second":
            return write(fd, content)
        if not taken:
            raise OSError(errno.ENOSPC, "no space left")
        return write(fd, content[:taken])

    before = os.listdir("/proc/self/fd")
    with (
        monkeypatch.context() as broken,
        pytest.raises(
            StateUnwritable, match=r"^can't write /\S*/handles/T-other\.new: (?i:no space)"
        ),
    ):
        broken.setattr(os, "write", full)
        with desk.state.transaction() as db:
            db.execute("DELETE FROM lease")
            desk.state.stage_names(names.name, ["first"])
            desk.state.stage_names("T-other", ["second"])
    assert os.listdir(names.parent) == [names.name]
    assert names.read_text() == SOUND
    assert (desk.directory / "state.lock").read_bytes()[:1] == b"\0"
    assert os.listdir("/proc/self/fd") == before


def put_fifo(path: Path) -> None:
    os.mkfifo(path)


def put_link(path: Path) -> None:
    target = path.parents[2] / "precious"
    target.write_text(SOUND)
    path.symlink_to(target)


def put_folder(path: Path) -> None:
    (path / "somebody's own").mkdir(parents=True)


@pytest.mark.parametrize("put", [put_fifo, put_link])
@pytest.mark.parametrize("said", [["another"], [], None])
def test_what_lies_in_its_place_is_replaced_and_not_opened(
    desk: Desk, names: Path, put: Callable[[Path], None], said: list[str] | None
) -> None:
    names.unlink()
    put(names)
    with desk.state.transaction():
        desk.state.stage_names(names.name, said)
    assert names.is_symlink() is False
    assert os.path.lexists(names) == (said is not None)
    assert said is None or (names.is_file() and names.read_text() == "\n".join(said))
    precious = names.parents[2] / "precious"
    assert not precious.exists() or precious.read_text() == SOUND


@pytest.mark.parametrize("put", [put_fifo, put_link])
def test_what_lies_in_its_place_does_not_stop_who_finishes_for_the_dead(
    desk: Desk, names: Path, put: Callable[[Path], None]
) -> None:
    names.unlink()
    put(names)
    put(Path(f"{names}.new"))
    leave_half_way(desk, names)
    next_write(desk)
    assert os.listdir(names.parent) == [names.name]
    assert not names.is_symlink()
    assert names.read_text() == SOUND


@pytest.mark.parametrize("put", [put_fifo, put_link, put_folder])
def test_a_release_succeeds_whatever_lies_in_place_of_its_file(
    cli: Cli, put: Callable[[Path], None]
) -> None:
    cli.pool("T", "T--00")
    handle = Path(cli.ok("acquire", "-t", "T").strip())
    handle.unlink()
    put(handle)
    assert cli.ok("release", "--handle", str(handle)) == "T--00\n"
    cli.ok("status")
    assert (cli.state_dir / "state.lock").read_bytes()[:1] == b"\0"


@pytest.mark.parametrize("said", [["another"], [], None])
def test_a_file_that_can_not_be_replaced_after_the_commit_fails_nobody(
    desk: Desk, names: Path, monkeypatch: pytest.MonkeyPatch, said: list[str] | None
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken, desk.state.transaction() as db:
        db.execute("UPDATE meta SET purge_cursor = 'x'")
        desk.state.stage_names(names.name, said)
        broken.setattr(os, "rename" if said is not None else "unlink", refuse)
    assert desk.state.query("SELECT purge_cursor FROM meta")[0][0] == "x"
    next_write(desk)
    assert os.listdir(names.parent) == [names.name]


def test_a_full_disk_does_not_keep_a_file_from_being_emptied(
    desk: Desk, names: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(names_files, "write_new", full)
    with desk.state.transaction():
        desk.state.stage_names(names.name, [])
    assert names.read_text() == ""


@pytest.mark.parametrize(
    "note",
    [b"\xff\xfe\0", b"../../precious\0", b"a b\n\n//\0", b"\0", b"x" * 9000, os.urandom(8191)],
    ids=["no text", "a path", "no names", "empty", "too long", "random"],
)
def test_a_damaged_note_stops_no_command(desk: Desk, names: Path, note: bytes) -> None:
    precious = names.parents[2] / "precious"
    precious.write_text("")
    with open(desk.directory / "state.lock", "r+b") as lock:
        lock.write(b"+" + note)
    next_write(desk)
    assert precious.exists()
    assert names.read_text() == SOUND
    desk.pool(1, "U")
    assert desk.acquire(Request("U")).names == ("U--00",)


def test_numbers_in_a_lock_that_are_damaged_draw_fences_all_the_same(desk: Desk) -> None:
    desk.pool(2)
    first = desk.acquire().leases[0].fence
    with open(desk.directory / "state.lock", "r+b") as lock:
        lock.seek(8192 - 64 + 8)
        lock.write(b"\xff" * 16)
    assert first < desk.acquire().leases[0].fence < first + 10_000
