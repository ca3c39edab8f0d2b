"""Programs that are run for what they print, however they behave."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from leasectl.errors import Unanswered
from leasectl.system import program
from leasectl.system.poll import sleep
from leasectl.system.program import Ended, run_program
from leasectl.system.signals import SignalTrap
from tests.kit.waits import eventually


def run(script: str, *, seconds: float = 30.0, longest_bytes: int = 1000) -> Ended:
    return run_program(
        "/bin/sh",
        ("sh", "-c", script),
        {"PATH": os.environ["PATH"], "GIVEN": "yes"},
        seconds=seconds,
        longest_bytes=longest_bytes,
    )


def test_what_it_prints_says_and_ends_with_is_told() -> None:
    assert run('printf "out $GIVEN"; echo err >&2; exit 3') == Ended("exit", 3, b"out yes", "err\n")
    assert run("kill -9 $$") == Ended("signal", 9, b"", "")


def test_it_has_nobody_to_ask_and_nothing_of_ours() -> None:
    ended = run("read x; echo $?; { echo hello > /dev/tty; } 2>/dev/null; echo $?")
    nothing_read, no_terminal = ended.printed.split()
    assert nothing_read == b"1"
    assert no_terminal != b"0"
    opened = run("ls /proc/self/fd").printed.decode().split()
    ours = {fd for fd in os.listdir("/proc/self/fd") if int(fd) > 2}
    closed_there = {fd for fd in ours if not is_inheritable(int(fd))}
    assert not set(opened) & closed_there - {"3"}  # ls has one on the folder


def is_inheritable(fd: int) -> bool:
    try:
        return os.get_inheritable(fd)
    except OSError:  # of the folder that was listed
        return True


def test_a_lot_of_output_is_read_while_it_comes() -> None:
    ended = run("head -c 900000 /dev/zero; head -c 300000 /dev/zero >&2", longest_bytes=1 << 20)
    assert len(ended.printed) == 900000
    assert len(ended.said) < 1 << 15


def test_of_what_it_says_the_end_counts() -> None:
    assert run("head -c 300000 /dev/zero >&2; echo; echo the end >&2").said.endswith("the end\n")


def test_one_that_prints_without_end_is_ended() -> None:
    assert run("yes").why == "length"


@pytest.mark.parametrize(
    "script", ["sleep 1000", "sleep 1000 & wait", "trap '' TERM HUP; sleep 1000"]
)
def test_one_that_hangs_is_ended_with_what_it_has_started(script: str, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    since = time.monotonic()
    ended = run(f"echo $$ > {pid_file}; echo said >&2; {script}", seconds=1.5)
    assert time.monotonic() - since >= 1.5
    assert (ended.why, ended.said) == ("time", "said\n")
    session = int(pid_file.read_text())
    eventually(lambda: not in_session(session))


def in_session(session: int) -> bool:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            return True
    return False


def test_what_it_leaves_behind_does_not_hold_us_up() -> None:
    left = int(run("sleep 1000 & echo $!", seconds=1000.0).printed)
    with contextlib.suppress(ProcessLookupError):
        os.kill(left, signal.SIGKILL)


def test_one_that_is_not_there_says_so() -> None:
    with pytest.raises(FileNotFoundError):
        run_program("/nonexistent", ("x",), {}, seconds=1, longest_bytes=1)


def test_no_signal_is_blocked_or_ignored_in_it() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    try:
        said = run("grep -E '^Sig(Blk|Ign)' /proc/self/status").printed.decode()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert [int(line.split()[1], 16) & (1 << 14 | 1 << 16) for line in said.splitlines()] == [0, 0]


def test_a_signal_ends_it_with_what_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep_after_signal(**keywords: Any) -> set[int]:
        os.kill(os.getpid(), signal.SIGTERM)
        return sleep(**keywords)

    monkeypatch.setattr(program, "sleep", sleep_after_signal)
    with SignalTrap() as trap, pytest.raises(Unanswered):
        run("sleep 1000")
    assert trap.signum == signal.SIGTERM


def test_after_one_it_may_still_be_asked_to_clean_up() -> None:
    with SignalTrap():
        os.kill(os.getpid(), signal.SIGTERM)
        assert run("echo hello").printed == b"hello\n"


def test_where_children_are_ignored_it_is_run_all_the_same() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert run("echo hello") == Ended("exit", 0, b"hello\n", "")
    finally:
        signal.signal(signal.SIGCHLD, before)


def own_children() -> set[str]:
    found = Path("/proc/self/task").glob("*/children")
    return {pid for children in found for pid in children.read_text().split()}


def test_it_leaves_no_descriptor_and_no_process() -> None:
    before, children = set(os.listdir("/proc/self/fd")), own_children()
    for script in ("echo hello", "yes", "exit 1"):
        run(script)
    run("sleep 60", seconds=0.05)
    assert set(os.listdir("/proc/self/fd")) == before
    assert own_children() == children
