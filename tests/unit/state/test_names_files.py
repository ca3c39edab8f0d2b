"""What a writer that was killed half-way leaves of the names files, and what becomes of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from leasectl.errors import StateUnwritable
from leasectl.model import Request
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk

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
    assert (desk.directory / "state.lock").read_bytes()[:1] == b"\0"


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


def test_one_that_is_right_is_left_alone(desk: Desk, names: Path) -> None:
    before = names.stat().st_ino
    leave_half_way(desk, names)
    next_write(desk)
    assert names.stat().st_ino == before


def test_one_of_which_there_is_no_record_goes(desk: Desk, names: Path) -> None:
    stray = names.with_name("T-stray")
    stray.write_text("T--00")
    leave_half_way(desk, names, stray)
    next_write(desk)
    assert not stray.exists()
    assert names.exists()


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

    with monkeypatch.context() as broken, pytest.raises(StateUnwritable):
        broken.setattr(os, "write", full)
        with desk.state.transaction():
            desk.state.stage_names(names.name, ["first"])
            desk.state.stage_names("T-other", ["second"])
    assert os.listdir(names.parent) == [names.name]
    assert names.read_text() == SOUND
    assert (desk.directory / "state.lock").read_bytes()[:1] == b"\0"
