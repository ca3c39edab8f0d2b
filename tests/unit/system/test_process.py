"""leasectl.system.process"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leasectl.model import Process, parse_process
from leasectl.state.directory import State
from leasectl.system import process as module
from leasectl.system.namespaces import lock_path
from leasectl.system.process import (
    DeadProcesses,
    boot_id,
    identify,
    is_dead_here,
    liveness,
    open_pidfd,
    own_pid_namespace,
    this_process,
)
from tests.kit.waits import eventually, wait_readable


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


@contextmanager
def a_process_without_its_first_thread() -> Iterator[subprocess.Popen[bytes]]:
    """A process in state Z that goes on in another thread."""
    script = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(1000,)).start()\n"
        "ctypes.CDLL(None).syscall(60 if ctypes.sizeof(ctypes.c_long) == 8 else 1, 0)"
    )
    if os.uname().machine != "x86_64":
        pytest.skip("the number of exit(2) is that of x86-64")
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        try:
            stat = Path(f"/proc/{process.pid}/stat")
            eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z")
            yield process
        finally:
            process.kill()


# Root without capabilities, outside of group 0, sees of other users' processes what any user sees.
UNPRIVILEGED = "setpriv --regid 54320 --clear-groups --bounding-set -all --inh-caps -all --"
HIDING = 'mount -t proc -o hidepid=$1 proc /proc || exit 99; shift; exec "$@"'


def run_where_processes_are_hidden(
    hidepid: int, *command: str, env: dict[str, str] | None = None
) -> str:
    """Run a command where /proc hides other users' processes, in a pid namespace of its own."""
    return run_in_a_pid_namespace(HIDING, str(hidepid), *command, env=env)


def run_in_a_pid_namespace(script: str, *arguments: str, env: dict[str, str] | None = None) -> str:
    """Run a shell script in a pid namespace of its own, and return what it prints."""
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    try:
        done = subprocess.run(
            [*unshare, "sh", "-c", script, "sh", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env=env,
        )
    except FileNotFoundError:
        pytest.skip("no unshare here")
    if done.returncode == 99 or done.stderr.startswith("unshare: "):
        pytest.skip(f"no mount of /proc with hidepid here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def changed(process: Process, **fields: object) -> Process:
    return process._replace(**fields)  # type: ignore[arg-type]


def is_readable(fd: int, timeout_ms: int = 0) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_ms))


def test_a_zombie_is_dead() -> None:
    with a_process() as process:
        name = identify(process.pid)
        process.kill()
        eventually(lambda: liveness(name) == "dead")
        assert process.returncode is None  # nobody has waited for it: it is a zombie


def test_process_whose_first_thread_has_ended_is_alive_until_its_last_ends() -> None:
    with a_process_without_its_first_thread() as process:
        name = identify(process.pid)
        assert liveness(name) == "alive"
        assert name.encode() not in DeadProcesses()
        pidfd = open_pidfd(name)
        assert pidfd is not None
        assert not is_readable(pidfd)
        process.kill()
        eventually(lambda: liveness(name) == "dead")
        assert process.returncode is None  # it is a zombie now
        assert is_readable(pidfd)
        os.close(pidfd)


SEEN_FROM_OUTSIDE = """
import os, subprocess, sys
from leasectl.errors import LeaseError
from leasectl.model import Process
from leasectl.system.process import *
from leasectl.system.process_watch import ProcessEnds
from leasectl.system.process_watch import ProcessWatch
from leasectl.system.poll import is_readable

pid, last = int(sys.argv[1]), int(sys.argv[2])
named = Process(boot_id(), own_pid_namespace(), pid, 1)
many = [named._replace(pid=4194305 + number).encode() for number in range(200)]
dead = DeadProcesses()
print(sum(each in dead for each in many), named.encode() in dead, liveness(named))
try:
    identify(pid)
except LeaseError as error:
    print(type(error).__name__, error)
ends, watch = ProcessEnds(10), ProcessWatch()
ends.follow([named])
without = ProcessEnds(0)
without.follow([named])
print(watch.update([named]), ends.take(), without.look())
pidfd = open_pidfd(named)
os.write(last, b"end")
os.close(last)
assert is_readable(pidfd, 300)
while liveness(named) != "dead":
    pass
print(ends.take() == [named], without.look(), watch.is_dead(named), without.take() == [named])
"""


@pytest.mark.parametrize("hidepid", [1, 2])
def test_process_that_proc_hides_is_unknown_until_it_ends(hidepid: int, tmp_path: Path) -> None:
    other = (
        'setpriv --reuid 54321 --regid 54321 --clear-groups -- cat <"$0/end" >&2 & '
        'exec 9>"$0/end"; until grep -q "^Uid:.54321" /proc/$!/status; do :; done; '
        f'exec {UNPRIVILEGED} "$1" -c "$2" $! 9'
    )
    os.mkfifo(tmp_path / "end")
    arguments = ["sh", "-c", other, str(tmp_path), sys.executable, SEEN_FROM_OUTSIDE]
    told = run_where_processes_are_hidden(hidepid, *arguments).splitlines()
    assert told[0] == "200 False unknown"
    assert told[1].startswith("LeaseError can't read /proc/")
    assert "hidepid" in told[1]
    assert told[2:] == ["False [] False", "True True True True"]


def test_proc_of_another_pid_namespace_is_not_believed() -> None:
    """A pid means another process there, so that a living one would seem dead."""
    told = run_in_a_pid_namespace(
        'sleep 1000 & exec "$@" $!',
        sys.executable,
        "-c",
        "import sys\n"
        "from leasectl.errors import LeaseError\n"
        "from leasectl.system.process import *\n"
        "pid = int(sys.argv[1])\n"
        "named = Process(boot_id(), own_pid_namespace(), pid, 1)\n"
        "print(liveness(named), liveness(named._replace(pid=1 << 22)))\n"
        "try:\n"
        "    this_process()\n"
        "except LeaseError as error:\n"
        "    print(error)\n",
    )
    assert told.startswith("unknown dead\ncan't read /proc/1/stat: ")
    assert "mount /proc in this container" in told


def test_lease_of_a_setuid_command_is_kept_where_proc_hides_it(tmp_path: Path) -> None:
    """As for sudo: the command runs as another user, so its own caller can't read it."""
    command = tmp_path / "another-users-cat"
    shutil.copy(shutil.which("cat") or "/bin/cat", command)
    os.chown(command, 54321, 54321)
    command.chmod(0o4755)
    script = """
import os, subprocess, sys
leasectl = [sys.executable, "-m", "leasectl"]
subprocess.run([*leasectl, "pool", "create", "one", "-c", "1"], check=True, stdout=2)
run = [*leasectl, "run", "-t", "one", "--", sys.argv[1]]
with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
    running.stdin.write(b"up\\n")
    running.stdin.flush()
    running.stdout.readline()
    second = subprocess.run([*leasectl, "acquire", "-t", "one", "-w", "0"], check=False)
    running.stdin.close()
print(second.returncode, running.returncode)
second = subprocess.run([*leasectl, "acquire", "-t", "one", "-w", "0"], check=False, stdout=2)
print(second.returncode)
""".replace("\\\\n", "\\n")
    environment = {**os.environ, "LEASECTL_STATE_DIR": str(tmp_path / "state")}
    environment["LEASECTL_BACKEND"] = "local:"
    told = run_where_processes_are_hidden(
        2, *UNPRIVILEGED.split(), sys.executable, "-c", script, str(command), env=environment
    )
    assert told == "75 0\n0\n"


def test_a_process_that_no_descriptor_is_left_to_look_at_is_not_said_to_be_hidden() -> None:
    script = (
        "import os, resource\n"
        "from leasectl.errors import LeaseError\n"
        "from leasectl.system.process import identify\n"
        "identify(os.getpid())\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "try: identify(os.getpid())\n"
        "except LeaseError as error: print(error)"
    )
    said = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert said.endswith(
        "/stat: Too many open files; raise the limit, which is 3 here: ulimit -n\n"
    )


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
        wait_readable(pidfd)
        os.close(pidfd)


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


def test_process_of_another_pid_namespace_is_dead_once_the_lock_of_that_is_free(
    state_dir: Path,
) -> None:
    State.open(str(state_dir)).close()
    elsewhere = changed(this_process(), pid_namespace=1)
    lock = Path(lock_path(str(state_dir), 1))
    assert liveness(elsewhere) == "unknown"
    lock.touch(0o600)
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert liveness(elsewhere) == "unknown"
    assert liveness(elsewhere) == "dead"
    # A server's record may be of another state directory, where the number means another one.
    assert not is_dead_here(elsewhere)
    lock.unlink()
    lock.symlink_to("state.lock")
    assert liveness(elsewhere) == "unknown"
