"""Files that somebody names: read whole, and never waited for without an end."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from leasectl.errors import FileUnreadable
from leasectl.http import settings
from leasectl.http.settings import NamedFile


def read(path: object, longest_bytes: int = 1 << 20) -> bytes:
    return NamedFile("token file", str(path), "--it").read(longest_bytes)


def test_all_of_it_is_read_or_as_much_as_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 200_000)
    assert len(read(tmp_path / "a")) == 200_000
    assert len(read(tmp_path / "a", 70_000)) == 70_000
    assert read("/dev/null") == b""
    assert len(read("/dev/zero", 100_000)) == 100_000


def test_a_pipe_that_nobody_writes_to_is_empty(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read(tmp_path / "pipe") == b""


def test_what_is_written_into_a_pipe_is_waited_for(tmp_path: Path) -> None:
    reading, writing = os.pipe()

    def write() -> None:
        os.write(writing, b"late")
        os.close(writing)

    threading.Timer(0.05, write).start()
    assert read(f"/dev/fd/{reading}") == b"late"
    os.close(reading)


def test_a_pipe_whose_writer_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "_LONGEST_WAIT_SECONDS", 0.05)
    reading, writing = os.pipe()
    os.write(writing, b"begun")
    with pytest.raises(FileUnreadable, match=r"it didn't end within 0.05 s; --it must name"):
        read(f"/dev/fd/{reading}")
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/nonesuch", "No such file or directory"),
        ("/", "Is a directory"),
        ("a\0b", "no file can be called so"),
        ("\ud800", "no file can be called so"),
    ],
)
def test_what_cannot_be_read_says_why(path: str, why: str) -> None:
    with pytest.raises(FileUnreadable, match=why) as raised:
        read(path)
    assert str(raised.value).isprintable()
