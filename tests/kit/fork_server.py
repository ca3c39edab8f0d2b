"""Commands that have nothing left to load: each is forked from one process that has imported all.

Starting an interpreter and importing is most of what a command costs, and thousands are run. Each
of these is a process with a session, an environment, a working directory and descriptors of its
own; only its interpreter isn't fresh. One that is, is what the documented examples, the tests of
the Bash functions and those of the pyz run, and whatever a test starts with `Cli.spawn`. Programs
of the kit that tests start by the hundred are forked from it as well.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn, TextIO

from tests.kit.loading import load_everything

_ROOT = Path(__file__).parents[2]
# The last in the path: what is installed goes before the source.
_SERVE = """
import sys
sys.path.append(sys.argv[1])
from tests.kit.fork_server import serve
serve(int(sys.argv[2]))
"""
# What an interpreter heeds when it starts, before anybody could tell it.
_HEEDED_AT_START = ("PYTHON", "LC_", "LANG")
_LONGEST_REQUEST = 100_000


class Command:
    """A command that was forked; to be used as a ``subprocess.Popen`` that captures text.

    Args:
        args: Its name and arguments.
        pid: Its process.
        status: Where the server says how it ended.
        stdout: What it prints; None where that isn't captured.
        stderr: Likewise.
    """

    def __init__(
        self,
        args: Sequence[str],
        pid: int,
        status: TextIO,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
    ) -> None:
        self.args = args
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None
        self._status = status
        # Whoever wants to end it may ask while another waits for its end.
        self._status_lock = threading.Lock()

    def poll(self) -> int | None:
        """How it ended, a negative code for a signal; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        with self._status_lock:
            if self.returncode is not None:
                return self.returncode
            said = os.dup(self._status.fileno())
        try:
            if not select.select([said], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        finally:
            os.close(said)
        with self._status_lock:
            if self.returncode is None:
                self.returncode = int(self._status.readline())
                self._status.close()
            return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read all that it prints and wait for its end."""
        deadline = time.monotonic() + (1e6 if timeout is None else timeout)
        streams = [each for each in (self.stdout, self.stderr) if each and not each.closed]
        read = {each.fileno(): b"" for each in streams}
        unread = set(read)
        while unread:
            remaining = deadline - time.monotonic()
            readable = select.select([*unread], [], [], max(0.0, remaining))[0]
            if not readable:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            for fd in readable:
                chunk = os.read(fd, 1 << 16)
                read[fd] += chunk
                if not chunk:
                    unread.remove(fd)
        self.wait(max(0.0, deadline - time.monotonic()))
        said = {
            each: _text(read[each.fileno()], each.encoding) for each in streams if not each.closed
        }
        for each in streams:
            each.close()
        out, err = (said.get(each, "") if each else "" for each in (self.stdout, self.stderr))
        return out, err

    def send_signal(self, signum: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def _text(data: bytes, encoding: str) -> str:
    return data.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def start(args: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> Command | None:
    """Start ``leasectl``.

    Args:
        args: Its arguments.
        env: Its environment.
        cwd: Where it runs.

    Returns:
        The command; None where only a fresh interpreter does what is asked for.
    """
    if _at_start(env) != _at_start(os.environ):
        return None
    if any("\0" in each for each in (*args, *env.values())):
        return None
    request = {"args": list(args), "env": {**env}, "cwd": str(cwd)}
    if len(json.dumps(request).encode()) > _LONGEST_REQUEST:
        return None
    out, out_end = os.pipe()
    err, err_end = os.pipe()
    try:
        pid, status = _forked(request, out_end, err_end)
    finally:
        os.close(out_end)
        os.close(err_end)
    return Command(["leasectl", *args], pid, status, os.fdopen(out), os.fdopen(err))


def start_program(program: Path, args: Sequence[str]) -> Command:
    """Start a program of the kit; what it prints goes where this process prints.

    Args:
        program: Its file, which finds by itself what it imports.
        args: Its arguments.
    """
    request = {"program": str(program), "args": list(args), "env": {**os.environ}, "cwd": "/"}
    return Command([str(program), *args], *_forked(request, 1, 2))


def _forked(request: Mapping[str, object], out: int, err: int) -> tuple[int, TextIO]:
    """Have a process forked; returns its pid, and where it is said how it ended."""
    words = json.dumps(request).encode()
    assert len(words) <= 2 * _LONGEST_REQUEST, "it would arrive in part"
    status, status_end = os.pipe()
    try:
        socket.send_fds(_server(), [words], [out, err, status_end])
    finally:
        os.close(status_end)
    said = os.fdopen(status)
    return int(said.readline()), said


def _at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_HEEDED_AT_START)}


@functools.cache
def _server() -> socket.socket:
    """The way to a server that lives for as long as this process does."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    argv = [sys.executable, "-c", _SERVE, str(_ROOT), str(its.fileno())]
    # Not where the source is, so that the installed package runs.
    process = subprocess.Popen(
        argv,
        cwd="/",
        pass_fds=[its.fileno()],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    its.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def serve(fd: int) -> None:
    """Fork a command for each request that comes, until whoever asks is gone.

    Args:
        fd: Of the socket.
    """
    sys.path.remove(str(_ROOT))
    load_everything()
    gc.collect()
    gc.freeze()
    requests = socket.socket(fileno=fd)
    running: dict[int, tuple[int, int]] = {}
    while True:
        for ready in select.select([fd, *running], [], [])[0]:
            if ready != fd:
                pid, status = running.pop(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                _tell(status, code)
                os.close(status)
                os.close(ready)
                continue
            request, fds, _, _ = socket.recv_fds(requests, 2 * _LONGEST_REQUEST, 3)
            if not request:
                return
            out, err, status = fds
            pid = os.fork()
            if pid == 0:
                _become(json.loads(request), out, err)
            running[os.pidfd_open(pid)] = pid, status
            _tell(status, pid)
            os.close(out)
            os.close(err)


def _tell(status: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # of a test that didn't wait for the end
        os.write(status, b"%d\n" % number)


def _become(request: dict[str, object], out: int, err: int) -> NoReturn:
    """In the forked process: let go of what is the server's, and be the command."""
    try:
        os.setsid()
        os.chdir(str(request["cwd"]))
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
        os.environ.clear()
        os.environ.update(request["env"])  # type: ignore[call-overload]
        time.tzset()
        sys.stdout = os.fdopen(1, "w", errors=sys.stdout.errors)
        sys.stderr = os.fdopen(2, "w", buffering=1, errors=sys.stderr.errors)
        _run(request)
        _end(0)
    except SystemExit as end:
        _end(end.code)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _end(code: object) -> NoReturn:
    """End as an interpreter does that exits with that."""
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(int(code or 0))  # type: ignore[call-overload]


def _run(request: dict[str, object]) -> None:
    program = request.get("program")
    if program is not None:
        sys.argv = [str(program), *request["args"]]  # type: ignore[misc]
        runpy.run_path(str(program), run_name="__main__")
        return
    from leasectl import __main__ as command

    sys.argv = [str(command.__file__), *request["args"]]  # type: ignore[misc]
    command.main()
