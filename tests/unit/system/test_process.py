"""leasectl.system.process"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leasectl.errors import NotFound
from leasectl.model import Process, parse_process
from leasectl.system import process as module
from leasectl.system.process import (
    DeadProcesses,
    boot_id,
    identify,
    liveness,
    open_pidfd,
    own_pid_namespace,
    this_process,
)
from tests.kit.support import eventually


@contextmanager
def a_process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing until it is killed."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def a_zombie() -> Iterator[int]:
    """The pid of a process that has ended and whose parent doesn't care."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    try:
        yield pid
    finally:
        os.waitpid(pid, 0)


def changed(process: Process, **fields: object) -> Process:
    return process._replace(**fields)  # type: ignore[arg-type]


def is_readable(fd: int, timeout_ms: int = 0) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_ms))


def test_this_process_lives() -> None:
    assert liveness(this_process()) == "alive"
    assert this_process().pid == os.getpid()


def test_a_process_is_alive_until_it_is_killed() -> None:
    with a_process() as process:
        name = identify(process.pid)
        assert liveness(name) == "alive"
        process.kill()
        process.wait()
        assert liveness(name) == "dead"


def test_a_zombie_is_dead() -> None:
    with a_process() as process:
        name = identify(process.pid)
        process.kill()
        eventually(lambda: liveness(name) == "dead")
        assert process.returncode is None  # nobody has waited for it: it is a zombie


def test_a_zombie_has_no_name() -> None:
    with a_zombie() as pid, pytest.raises(NotFound, match=str(pid)):
        identify(pid)


def test_no_process_has_no_name() -> None:
    unused = next(pid for pid in range(2, 1 << 22) if not os.path.exists(f"/proc/{pid}"))
    with pytest.raises(NotFound):
        identify(unused)


def test_a_pid_that_another_process_has_by_now_is_dead() -> None:
    reused = changed(this_process(), start_time=this_process().start_time - 1)
    assert liveness(reused) == "dead"
    assert open_pidfd(reused) is None


def test_the_same_pid_before_a_reboot_is_dead() -> None:
    assert liveness(changed(this_process(), boot_id="another")) == "dead"
    assert open_pidfd(changed(this_process(), boot_id="another")) is None


def test_of_a_process_in_a_foreign_pid_namespace_nothing_is_known() -> None:
    foreign = changed(this_process(), pid_namespace=1)
    assert liveness(foreign) == "unknown"
    assert open_pidfd(foreign) is None
    assert liveness(changed(foreign, pid=1 << 30)) == "unknown"


def test_a_reboot_kills_whatever_the_namespace_was() -> None:
    gone = changed(this_process(), pid_namespace=1, boot_id="another")
    assert liveness(gone) == "dead"


def test_a_command_name_can_not_forge_a_start_time(tmp_path: Path) -> None:
    """The name in /proc/<pid>/stat may hold parentheses and blanks."""
    program = tmp_path / "x) Z 0 (y"
    program.symlink_to(sys.executable)
    script = "import time; print('up', flush=True); time.sleep(1000)"
    with subprocess.Popen([program, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert ") Z 0 (" in Path(f"/proc/{process.pid}/stat").read_text()
        assert liveness(identify(process.pid)) == "alive"
        process.kill()


def test_a_pidfd_becomes_readable_when_the_process_ends() -> None:
    with a_process() as process:
        pidfd = open_pidfd(identify(process.pid))
        assert pidfd is not None
        assert not is_readable(pidfd)
        process.kill()
        assert is_readable(pidfd, 5000)
        os.close(pidfd)


def test_there_is_no_pidfd_of_the_dead() -> None:
    with a_process() as process:
        name = identify(process.pid)
        process.kill()
        process.wait()
        assert open_pidfd(name) is None


def test_no_descriptor_is_left_open_when_there_is_no_pidfd() -> None:
    before = set(os.listdir("/proc/self/fd"))
    assert open_pidfd(changed(this_process(), start_time=1)) is None
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_pid_reused_while_the_pidfd_is_opened_is_not_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one named dies, and another gets its pid, right before pidfd_open."""
    with a_process() as process:
        name = identify(process.pid)
        answers = iter([name.start_time, name.start_time + 1])
        monkeypatch.setattr(module, "_start_time", lambda pid: next(answers))
        assert next(answers) == name.start_time
        assert open_pidfd(name) is None


def test_the_name_of_a_process_reads_back() -> None:
    assert parse_process(this_process().encode()) == this_process()


def test_the_name_of_a_child_is_its_own_after_a_fork() -> None:
    """What is remembered of this process must not be taken for the child's."""
    parent = this_process()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.write(write, this_process().encode().encode())
        os._exit(0)
    os.close(write)
    said = parse_process(os.read(read, 1000).decode())
    os.close(read)
    os.waitpid(pid, 0)
    assert said.pid == pid
    assert said != parent


def test_a_stopped_process_is_alive() -> None:
    with a_process() as process:
        name = identify(process.pid)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        assert liveness(name) == "alive"


def test_of_many_the_dead_are_those_that_are_each_for_itself() -> None:
    with a_process() as child, a_zombie() as zombie:
        alive, named = identify(child.pid), this_process()
        reused = changed(alive, start_time=alive.start_time - 1)
        of_zombie = changed(alive, pid=zombie)
        gone = changed(alive, pid=2**22 + 1)  # more than there are
        before_boot = changed(gone, boot_id="x")
        foreign = changed(gone, pid_namespace=1)
        every = (alive, named, reused, of_zombie, gone, before_boot, foreign)
        dead = DeadProcesses()
        found = [each for each in every if each.encode() in dead]
        assert found == [each for each in every if liveness(each) == "dead"]
        assert set(found) == {reused, of_zombie, gone, before_boot}


def test_of_many_only_so_many_are_looked_at_whose_pid_is_there() -> None:
    with a_process() as child:
        alive = identify(child.pid)
        reused = [changed(alive, start_time=number) for number in range(3)]
        gone = changed(alive, pid=2**22 + 1)
        dead = DeadProcesses(most_looked_at=2)
        assert [each.encode() in dead for each in (*reused, gone)] == [True, True, False, True]
        assert [each.encode() in dead for each in reused] == [True, True, False]


def test_of_many_dead_the_pids_are_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = []

    def listdir(path: str) -> list[str]:
        listed.append(path)
        return [str(os.getpid())]

    monkeypatch.setattr(os, "listdir", listdir)
    named = this_process()
    dead = DeadProcesses()
    for number in range(200):
        assert changed(named, pid=2**22 + 1 + number).encode() in dead
        assert changed(named, start_time=named.start_time - 1 - number).encode() in dead
    assert named.encode() not in dead
    assert listed == ["/proc"]


@pytest.mark.parametrize("error", [PermissionError, ProcessLookupError, OverflowError])
def test_a_pid_that_nothing_may_be_asked_of_is_there(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def refuse(pid: int) -> int:
        raise error(pid)

    named = this_process()
    monkeypatch.setattr(os, "getpgid", refuse)
    assert (named.encode() in DeadProcesses()) == (error is not PermissionError)


def test_whoever_has_other_clocks_is_told_apart(tmp_path: Path) -> None:
    """There the start times of processes are others, so all would seem dead."""
    asked = (
        "from leasectl.system.process import *; print(own_pid_namespace(), this_process().encode())"
    )
    shifted = ["unshare", "--time", "--boottime", "5000", sys.executable, "-c", asked]
    try:
        done = subprocess.run(shifted, capture_output=True, text=True, cwd=tmp_path)
    except FileNotFoundError:
        pytest.skip("no unshare here")
    if done.returncode != 0:
        pytest.skip(f"no time namespaces here: {done.stderr}")
    namespace, _, process = done.stdout.strip().partition(" ")
    assert int(namespace) != own_pid_namespace()
    assert int(namespace) < 1 << 63  # SQLite's numbers
    assert liveness(parse_process(process)) == "unknown"


@pytest.mark.parametrize("pid", ["abc", "", "x:y", "9" * 40])
def test_a_pid_that_is_none_is_nobodys(pid: str) -> None:
    process = f"{boot_id()}:{own_pid_namespace()}:{pid}:1"
    assert process in DeadProcesses()


def test_what_no_record_has_is_no_process() -> None:
    with pytest.raises(ValueError, match="values to unpack"):
        assert "nonsense" in DeadProcesses()
