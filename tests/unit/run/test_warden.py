"""A command that ends with whoever started it, and all that it has started with it."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

import pytest

from leasectl.run.child import Child, Ending
from leasectl.run.warden import LET_GO, watch_over
from leasectl.system import poll
from leasectl.system.clock import boottime_seconds
from leasectl.system.signals import SignalDescriptor
from tests.kit.waits import eventually

SHELL = "/bin/sh"


def new_child(signals: SignalDescriptor, script: str, **streams: int | None) -> Child:
    """One that hasn't begun."""
    argv = (SHELL, "-c", script)
    return Child(SHELL, argv, dict(os.environ), signals, ends_with_us=True, **streams)


def child_of(signals: SignalDescriptor, script: str, *, stdout: int | None = None) -> Child:
    child = new_child(signals, script, stdout=stdout)
    child.start()
    return child


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pids_in(file: Path, count: int) -> list[int]:
    def read() -> list[int]:
        found = file.read_text().split() if file.exists() else []
        return [int(each) for each in found] if len(found) == count else []

    return eventually(read)


@pytest.mark.parametrize(
    ("script", "ending"),
    [
        ("exit 0", Ending(0)),
        ("exit 7", Ending(7)),
        ("kill -TERM $$", Ending(None, signal.SIGTERM)),
        ("kill -KILL $$", Ending(None, signal.SIGKILL)),
        ("kill -SEGV $$", Ending(None, signal.SIGSEGV)),
    ],
)
def test_it_ends_as_the_command_did(signals: SignalDescriptor, script: str, ending: Ending) -> None:
    child = child_of(signals, script)
    assert child.reap() == ending
    child.let_go()


def test_a_process_that_can_not_become_the_command_ends_there(signals: SignalDescriptor) -> None:
    def become() -> NoReturn:
        raise FileNotFoundError(errno.ENOENT, "no")

    life, told, failure = os.pipe(), os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            watch_over(become, life=life[0], told=told[1], failure=failure[1], signals=signals)
        finally:
            os._exit(1)  # the command's process doesn't come by here
    for fd in (life[0], told[1], failure[1]):
        os.close(fd)
    with os.fdopen(told[0]) as said, os.fdopen(failure[0]) as failed:
        assert os.waitstatus_to_exitcode(int(said.readline())) == 126
        assert failed.read() == str(errno.ENOENT)
    os.write(life[1], LET_GO + b"\n")
    os.close(life[1])
    os.waitpid(pid, 0)


def test_a_signal_reaches_the_command(signals: SignalDescriptor, tmp_path: Path) -> None:
    script = f"trap 'exit 5' USR1; echo $$ >{tmp_path}/pid; while :; do sleep 0.05; done"
    child = child_of(signals, script)
    pids_in(tmp_path / "pid", 1)
    child.signal(signal.SIGUSR1)
    assert child.reap() == Ending(5)
    child.let_go()


def test_the_command_does_not_outlive_its_warden(signals: SignalDescriptor, tmp_path: Path) -> None:
    child = child_of(signals, f"echo $$ >{tmp_path}/pid; exec sleep 1000")
    (command,) = pids_in(tmp_path / "pid", 1)
    os.kill(child.pid, signal.SIGKILL)
    eventually(lambda: not is_running(command))
    assert child.reap() == Ending(None, signal.SIGKILL)
    child.let_go()


def test_what_the_terminal_sends_has_reached_the_command_already(
    signals: SignalDescriptor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = SignalDescriptor.read
    monkeypatch.setattr(
        SignalDescriptor,
        "read",
        lambda self: [(signum, signum != signal.SIGUSR1) for signum, _ in read(self)],
    )
    traps = "trap 'exit 5' USR1; trap 'exit 6' TERM"
    child = child_of(signals, f"{traps}; echo $$ >{tmp_path}/pid; while :; do sleep 0.05; done")
    pids_in(tmp_path / "pid", 1)
    for signum in (signal.SIGUSR1, signal.SIGTERM):
        child.signal(signum)
    assert child.reap() == Ending(6)
    child.let_go()


def test_what_it_writes_goes_where_it_is_to(signals: SignalDescriptor) -> None:
    read, write = os.pipe()
    child = child_of(signals, "printf 'a\\0b'", stdout=write)
    os.close(write)
    assert os.read(read, 100) == b"a\x00b"
    assert child.reap() == Ending(0)
    child.let_go()
    os.close(read)


LEAVES_OTHERS = (
    "echo $$ >>{0}; (setsid sleep 1000 & echo $! >>{0}; exec sleep 1000) & "
    "echo $! >>{0}; sleep 1000"
)


def test_to_kill_it_kills_all_that_it_has_started(
    signals: SignalDescriptor, tmp_path: Path
) -> None:
    child = child_of(signals, LEAVES_OTHERS.format(tmp_path / "pids"))
    pids = pids_in(tmp_path / "pids", 3)
    child.signal(signal.SIGKILL)
    assert child.reap() == Ending(None, signal.SIGKILL)
    child.kill_rest()
    assert not any(map(is_running, pids))
    assert is_running(child.pid)
    child.let_go()


def test_its_time_is_over_also_when_nobody_looks(signals: SignalDescriptor, tmp_path: Path) -> None:
    child = child_of(signals, LEAVES_OTHERS.format(tmp_path / "pids"))
    child.kill_at(boottime_seconds() + 1000)
    pids = pids_in(tmp_path / "pids", 3)
    child.kill_at(boottime_seconds() + 0.05)
    assert child.reap() == Ending(None, signal.SIGKILL)
    child.kill_rest()
    assert not any(map(is_running, pids))
    child.let_go()


def test_its_time_is_over_also_when_it_passed_in_suspend(
    signals: SignalDescriptor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout of poll(2) isn't over by then: it doesn't count that time."""
    monkeypatch.setattr(poll, "milliseconds", lambda until, now: None)
    child = child_of(signals, "sleep 60")
    child.kill_at(boottime_seconds() + 0.05)
    assert child.reap() == Ending(None, signal.SIGKILL)
    child.let_go()


def test_a_time_that_was_put_off_has_no_effect(signals: SignalDescriptor) -> None:
    read, write = os.pipe()
    child = new_child(signals, "read line; exit 3", stdin=read)
    child.kill_at(boottime_seconds() + 0.01)
    child.kill_at(None)
    child.start()
    time.sleep(0.03)
    os.write(write, b"\n")
    assert child.reap() == Ending(3)
    child.let_go()
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGCONT])
def test_what_a_command_gets_after_its_end_is_nothing_to_whoever_stands_for_it(
    signals: SignalDescriptor, signum: int
) -> None:
    child = child_of(signals, "exit 3")
    assert child.reap() == Ending(3)
    child.signal(signum)
    child.kill_rest()  # which it answers after that
    assert is_running(child.pid)
    child.let_go()


@pytest.mark.parametrize("times", [(-1.0, None), (-1.0, 1000.0), (1000.0, -1.0)])
def test_before_it_begins_the_time_that_was_told_last_counts(
    signals: SignalDescriptor, times: tuple[float | None, ...]
) -> None:
    child = new_child(signals, "exit 3")
    for each in times:
        child.kill_at(None if each is None else boottime_seconds() + each)
    child.start()
    assert child.reap() == (Ending(None, signal.SIGKILL) if times[-1] == -1.0 else Ending(3))
    child.let_go()


def test_a_time_that_is_ahead_is_waited_for_whatever_happens_before(
    signals: SignalDescriptor, tmp_path: Path
) -> None:
    script = f"trap 'exit 5' TERM; echo $$ >{tmp_path}/pid; while :; do sleep 0.02; done"
    child = new_child(signals, script)
    child.kill_at(boottime_seconds() + 1000)
    child.start()
    pids_in(tmp_path / "pid", 1)
    child.kill_at(boottime_seconds() + 2000)
    child.signal(signal.SIGTERM)
    assert child.reap() == Ending(5)
    child.let_go()


def test_one_that_is_killed_before_it_begins_never_does(
    signals: SignalDescriptor, tmp_path: Path
) -> None:
    child = new_child(signals, f"echo >{tmp_path}/begun; sleep 60")
    child.signal(signal.SIGKILL)
    child.kill_at(boottime_seconds() + 1000)
    child.start()
    assert child.reap() == Ending(None, signal.SIGKILL)
    child.let_go()
    assert list(tmp_path.iterdir()) == []


def test_whoever_stops_the_processes_of_a_command_does_not_stop_whoever_stands_for_it(
    signals: SignalDescriptor, tmp_path: Path
) -> None:
    child = child_of(signals, f"echo $$ >{tmp_path}/pid; exec sleep 60")
    (command,) = pids_in(tmp_path / "pid", 1)
    eventually(lambda: os.getsid(child.pid) == child.pid)
    assert os.getsid(command) == os.getsid(0)
    child.signal(signal.SIGKILL)
    assert child.reap() == Ending(None, signal.SIGKILL)
    child.let_go()


def test_what_a_command_leaves_behind_lives_on_unless_it_is_killed(
    signals: SignalDescriptor, tmp_path: Path
) -> None:
    script = "sleep 1000 & echo $! >{}"
    child = child_of(signals, script.format(tmp_path / "left"))
    assert child.reap() == Ending(0)
    child.let_go()
    (left,) = pids_in(tmp_path / "left", 1)
    assert is_running(left)
    os.kill(left, signal.SIGKILL)
    child = child_of(signals, script.format(tmp_path / "killed"))
    assert child.reap() == Ending(0)
    child.kill_rest()
    (killed,) = pids_in(tmp_path / "killed", 1)
    assert not is_running(killed)
    assert is_running(child.pid)  # it is the guard as long as it isn't let go
    child.let_go()
    assert not is_running(child.pid)


STARTS = """
import os, signal, sys, time
from leasectl.run.child import Child
from leasectl.system.clock import boottime_seconds
from leasectl.system.signals import SignalDescriptor
argv = ("/bin/sh", "-c", sys.argv[1])
signals = SignalDescriptor((signal.SIGTERM,))
child = Child(argv[0], argv, dict(os.environ), signals, ends_with_us=True)
child.start()
print(child.pid, flush=True)
time.sleep(1000)
"""


def test_it_ends_with_whoever_is_killed_and_not_before_all_others(tmp_path: Path) -> None:
    script = LEAVES_OTHERS.format(tmp_path / "pids")
    read, write = os.pipe()
    starter = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", STARTS, script],
        dict(os.environ),
        file_actions=[(os.POSIX_SPAWN_DUP2, write, 1)],
    )
    os.close(write)
    with os.fdopen(read) as said:
        warden = int(said.readline())
    pids = pids_in(tmp_path / "pids", 3)
    os.kill(starter, signal.SIGKILL)
    os.waitpid(starter, 0)
    eventually(lambda: not is_running(warden))
    assert not any(map(is_running, pids))


def test_a_command_that_is_stopped_can_be_continued(
    signals: SignalDescriptor, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    child = child_of(signals, f"trap 'exit 3' TERM; echo $$ >{pid_file}; kill -STOP $$; exit 4")
    (pid,) = pids_in(pid_file, 1)
    eventually(lambda: is_stopped(pid))
    child.signal(signal.SIGTERM)
    child.signal(signal.SIGCONT)
    assert child.reap() == Ending(3)
    child.let_go()


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
