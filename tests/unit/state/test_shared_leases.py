"""leasectl.state.shared_leases: ``$SHARED_DIR/leases``"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from leasectl.errors import CorruptState, StateUnwritable
from leasectl.state import shared_leases
from tests.kit.forking import ending, fork


@pytest.fixture
def shared_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


def content(shared_dir: Path) -> str:
    return (shared_dir / "leases").read_text()


@pytest.mark.parametrize("junk", [b"$(id)\n", b"a\n../b\n", b"\xff\xfe\x00", b"a\x00b", b"x" * 254])
def test_what_is_no_list_is_refused_and_left_alone(shared_dir: Path, junk: bytes) -> None:
    (shared_dir / "leases").write_bytes(junk)
    for change in (
        lambda: shared_leases.listed(str(shared_dir)),
        lambda: shared_leases.add(str(shared_dir), ["c"]),
        lambda: shared_leases.remove(str(shared_dir), ["a"]),
    ):
        with pytest.raises(CorruptState, match="leases is not a list of resource names"):
            change()
    assert (shared_dir / "leases").read_bytes() == junk


def test_a_list_longer_than_a_secret_is_refused(shared_dir: Path) -> None:
    longest = b"a\n" * (1 << 19)
    (shared_dir / "leases").write_bytes(longest)
    assert len(shared_leases.listed(str(shared_dir))) == 1 << 19
    (shared_dir / "leases").write_bytes(longest + b"\n")
    with pytest.raises(CorruptState):
        shared_leases.listed(str(shared_dir))


def test_a_list_that_does_not_change_is_not_written(shared_dir: Path) -> None:
    shared_leases.add(str(shared_dir), ["a"])
    before = (shared_dir / "leases").stat().st_ino
    shared_leases.remove(str(shared_dir), ["b"])
    assert (shared_dir / "leases").stat().st_ino == before


def test_a_reader_never_sees_half_a_list(shared_dir: Path) -> None:
    shared_leases.add(str(shared_dir), ["a", "b"])
    with open(shared_dir / "leases") as old:
        shared_leases.remove(str(shared_dir), ["a"])
        assert old.read() == "a\nb\n"


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StateUnwritable, match=r"SHARED_DIR .*gone: No such file"):
        shared_leases.add(str(tmp_path / "gone"), ["a"])


def test_a_file_in_place_of_the_folder_is_reported_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a\n")
    for change in (shared_leases.listed, lambda path: shared_leases.add(path, ["a"])):
        with pytest.raises(StateUnwritable, match=r"^SHARED_DIR \S*/file: Not a directory$"):
            change(str(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "a\n"


def test_a_list_that_can_not_be_replaced_is_reported(shared_dir: Path) -> None:
    (shared_dir / "leases").mkdir()
    with pytest.raises(StateUnwritable):
        shared_leases.add(str(shared_dir), ["a"])
    assert os.listdir(shared_dir) == ["leases"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_a_folder_that_can_not_be_written_is_reported(shared_dir: Path) -> None:
    shared_leases.add(str(shared_dir), ["a"])
    shared_dir.chmod(0o555)
    (shared_dir / "leases").chmod(0o644)
    inside = os.open(shared_dir, os.O_RDONLY)

    def add() -> None:
        os.fchdir(inside)  # the folders above are closed to others
        os.setresuid(12345, 12345, 12345)
        assert shared_leases.listed(".") == ["a"]
        with pytest.raises(StateUnwritable, match="make it writable"):
            shared_leases.add(".", ["b"])

    assert ending(fork(add)) == 0
    assert content(shared_dir) == "a\n"
    os.close(inside)


def test_of_changes_at_the_same_time_none_is_lost(shared_dir: Path) -> None:
    def work(number: int) -> None:
        for round_number in range(12):
            shared_leases.add(str(shared_dir), [f"keep-{number}-{round_number}", f"drop-{number}"])
            shared_leases.remove(str(shared_dir), [f"drop-{number}"])

    children = [fork(lambda n=n: work(n)) for n in range(8)]  # type: ignore[misc]
    assert [ending(child) for child in children] == [0] * 8
    assert sorted(shared_leases.listed(str(shared_dir))) == sorted(
        f"keep-{n}-{m}" for n in range(8) for m in range(12)
    )
    assert os.listdir(shared_dir) == ["leases"]


def test_a_list_that_could_not_be_put_in_place_leaves_nothing_behind(
    shared_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    shared_leases.add(str(shared_dir), ["T--00"])
    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(StateUnwritable, match="no space left; make it writable"):
        shared_leases.add(str(shared_dir), ["T--01"])
    assert content(shared_dir) == "T--00\n"
    assert not [name for name in os.listdir(shared_dir) if "new" in name]
    assert os.listdir("/proc/self/fd") == before


def test_a_link_at_the_temporary_name_is_not_written_through(
    shared_dir: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (shared_dir / ".leases.new").symlink_to(victim)
    shared_leases.add(str(shared_dir), ["T--00"])
    assert content(shared_dir) == "T--00\n"
    assert victim.read_text() == "precious"


def test_a_list_behind_a_link_is_read(shared_dir: Path) -> None:
    """A mounted Secret has links."""
    (shared_dir / "data").write_text("T--00")
    (shared_dir / "leases").symlink_to("data")
    assert shared_leases.listed(str(shared_dir)) == ["T--00"]


@pytest.mark.parametrize("has_writer", [False, True])
def test_a_fifo_in_its_place_is_refused_at_once(shared_dir: Path, has_writer: bool) -> None:
    os.mkfifo(shared_dir / "leases")
    other_end = os.open(shared_dir / "leases", os.O_RDWR) if has_writer else None
    for ask in (
        lambda: shared_leases.listed(str(shared_dir)),
        lambda: shared_leases.add(str(shared_dir), ["T--00"]),
        lambda: shared_leases.remove(str(shared_dir), ["T--00"]),
    ):
        with pytest.raises(CorruptState, match="leases is not a regular file; remove it"):
            ask()
    if other_end is not None:
        os.close(other_end)
