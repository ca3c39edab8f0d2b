"""The keeper's log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leasectl.keeper import log as module
from leasectl.keeper.log import Log
from tests.kit.descriptors import leaving_open
from tests.kit.support import ManualClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keeper.log"


@pytest.fixture
def log(path: Path, manual_clock: ManualClock) -> Log:
    return Log(str(path), manual_clock.clock)


def test_an_event_is_a_line_with_its_time_and_whose_it_is(log: Log, path: Path) -> None:
    log.write("started")
    log.write("released T-1: T--00")
    assert path.read_text() == (
        f"2023-11-14T22:13:20.000000Z [{os.getpid()}] started\n"
        f"2023-11-14T22:13:20.000000Z [{os.getpid()}] released T-1: T--00\n"
    )
    assert path.stat().st_mode & 0o777 == 0o600


def test_when_it_is_long_it_begins_anew_and_the_one_before_stays(
    log: Log, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write("first")
    monkeypatch.setattr(module, "_LONGEST_BYTES", path.stat().st_size)
    log.write("second")  # it was as long as it may be, and no longer
    older = Path(f"{path}.1")
    assert not older.exists()
    log.write("third")
    assert [line.split()[-1] for line in older.read_text().splitlines()] == ["first", "second"]
    assert path.read_text().endswith("third\n")
    log.write("fourth")
    assert path.read_text().endswith("fourth\n")
    assert len(path.read_text().splitlines()) == 2


def test_a_full_disk_silences_it(log: Log, path: Path) -> None:
    path.symlink_to("/dev/full")
    log.write("nobody hears this")  # a link isn't followed either
    assert os.readlink(path) == "/dev/full"


def test_it_keeps_no_file_open(log: Log) -> None:
    with leaving_open(0):
        for _ in range(5):
            log.write("event")


def test_a_fifo_in_its_place_holds_nobody_up(log: Log, path: Path) -> None:
    os.mkfifo(path)
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        log.write("released T-1: T--00")
        assert not reader.read(), "who reads it isn't told what the keeper does"
    log.write("released T-2: T--01")
